package loadtest

import (
	"os/exec"
	"runtime"
)

// spawn starts a child that the kernel ends with us where it can, and calls
// ended when the child is gone. before, when there is one, is called on the
// thread that starts the child and may change it: nothing else ever runs there.
func spawn(cmd *exec.Cmd, before func() error, ended func(error)) error {
	cmd.SysProcAttr = ownProcess()
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the thread that started
		// the child ends, not the process. So this goroutine keeps its thread
		// for as long as the child lives.
		runtime.LockOSThread()
		if before == nil {
			defer runtime.UnlockOSThread()
		} else if err := before(); err != nil {
			started <- err
			return
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}
