//go:build !linux

package peerfilter

import "time"

var processStart = time.Now()

// threadTime is the wall time here.
func threadTime() time.Duration { return time.Since(processStart) }
