package peerfilter

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime is the processor time that the calling thread has used: what
// other processes do in between does not count, apart from what they do to the
// caches. getrusage has it too, but only as of the last tick.
func threadTime() time.Duration {
	const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}
