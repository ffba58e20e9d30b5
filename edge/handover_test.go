package edge

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// TestListenerFiles_stayNonBlocking: when they did not, a process that had
// handed over hung in Close for as long as no other connection came.
func TestListenerFiles_stayNonBlocking(t *testing.T) {
	o := newOrigin(t, content)
	n := startNode(t, testConfig("edge-a", o.URL))
	client, peer, admin, err := n.ListenerFiles()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	defer peer.Close()
	defer admin.Close()
	for i, f := range []interface{ Fd() uintptr }{client, peer, admin} {
		f.Fd() // as starting a process does
		conn, err := n.listeners[i].(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = conn.Control(func(fd uintptr) {
			flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
			if errno != 0 || flags&syscall.O_NONBLOCK == 0 {
				t.Errorf("listener %d: flags %#x, %v; want O_NONBLOCK", i, flags, errno)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n.get(t, "/x").want(t, 200, "/x", "stored")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for _, g := range n.gates {
			n.handedOver.Store(true)
			g.Close()
		}
	}()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Fatal("the listeners do not close")
	}
}
