//go:build unix && !linux

package loadtest

import "syscall"

// ownProcess gives a child its own process group, so that Ctrl-C at the
// terminal reaches us alone.
func ownProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
