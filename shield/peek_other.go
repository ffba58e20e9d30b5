//go:build !unix || aix || solaris || illumos

package shield

import "syscall"

// canPeek is false: here a connection is read in order to wait for it, see conn.
const canPeek = false

func peek(syscall.RawConn) (n int, ok bool) { return 0, false }

func awaitReadable(syscall.RawConn) (n int, err error) { return 1, nil }
