//go:build !linux

package peerfilter

// makeWords returns n zero words.
func makeWords(n int) []uint64 { return make([]uint64, n) }
