package loadtest

import "syscall"

// ownProcess gives a child its own process group, so that Ctrl-C at the
// terminal reaches us alone, and has the kernel kill it when we die without
// having stopped it.
func ownProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
