package loadtest

import (
	"fmt"
	"runtime"
	"syscall"
)

// enterNetwork replaces the process by argv in a network namespace of its own.
// It returns only when it can't.
func enterNetwork(argv, environ []string) error {
	// The namespace is the calling thread's, and an exec ends all others. If it
	// fails the thread is of no use any more and ends with its goroutine.
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("unshare: %w", err)
			return
		}
		failed <- fmt.Errorf("exec: %w", syscall.Exec("/proc/self/exe", argv, environ))
	}()
	return <-failed
}

// join gives the calling thread a network namespace of its own, as node i. The
// thread must be locked to its goroutine for good; what it starts is inside.
func (n *bridge) join(i int) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network of %s: unshare: %w", nodeName(i), err)
	}
	tid := syscall.Gettid()
	attached := make(chan error)
	go func() { attached <- n.attach(i, tid) }() // on another thread, which is at the bridge
	if err := <-attached; err != nil {
		return fmt.Errorf("network of %s: %w", nodeName(i), err)
	}
	if err := ip(insideOf(i)...); err != nil {
		return fmt.Errorf("network of %s: %w", nodeName(i), err)
	}
	return nil
}
