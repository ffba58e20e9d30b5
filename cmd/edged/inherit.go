package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"edged/edge"
)

// firstFD is the first descriptor that a process may be started with besides
// the standard ones (sd_listen_fds(3), and exec.Cmd.ExtraFiles alike).
const firstFD = 3

// handoverEnv tells a process that it takes over from the one that started it:
// a [handover] as JSON.
const handoverEnv = "EDGED_HANDOVER"

// A handover says which descriptors a process gets from the one that it takes
// over from: the listeners of these configured addresses, in this order, then
// the pipe to that process, then the one from it. Members are gossip addresses.
type handover struct {
	Client  string   `json:"client"`
	Peer    string   `json:"peer"`
	Admin   string   `json:"admin"`
	Members []string `json:"members,omitempty"`
}

// The words of the two processes, a line each.
const (
	wordRelease  = "release"  // new to old: all is built, leave the cluster
	wordReleased = "released" // old to new: done
	wordReady    = "ready"    // new to old: this process serves
)

// A takeover is the new process's end of the conversation with the old one.
type takeover struct {
	to, from *os.File
}

// release asks the old process to leave the cluster, and waits until it has.
func (t *takeover) release() error {
	if _, err := io.WriteString(t.to, wordRelease+"\n"); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	word, err := bufio.NewReader(io.LimitReader(t.from, 64)).ReadString('\n')
	if errors.Is(err, io.EOF) && word == "" {
		return nil // it is gone, and so is what it held
	}
	if err != nil || word != wordReleased+"\n" {
		return fmt.Errorf("take over: the old process says %q, %w", word, err)
	}
	return nil
}

// ready tells the old process that it may go.
func (t *takeover) ready() error {
	_, err := io.WriteString(t.to, wordReady+"\n")
	t.to.Close()
	t.from.Close()
	if err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	return nil
}

// inherit takes the listeners that the process was started with: from an
// edged that it takes over from (then the takeover is not nil), or from
// systemd. Of the former it uses those whose configured address is still the
// same; with systemd it is the socket unit that says the addresses.
func inherit(env func(string) (string, bool), cfg edge.Config) (edge.Inherited, *takeover, error) {
	if text, ok := env(handoverEnv); ok {
		return inheritFromEdged(text, cfg)
	}
	in, err := inheritFromSystemd(env)
	return in, nil, err
}

func inheritFromEdged(text string, cfg edge.Config) (in edge.Inherited, t *takeover, err error) {
	var h handover
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return in, nil, fmt.Errorf("%s=%q: %w", handoverEnv, text, err)
	}
	in.Members = h.Members
	for i, l := range []struct {
		was, is string
		ln      *net.Listener
	}{
		{h.Client, cfg.Listen.Address, &in.Client}, {h.Peer, cfg.Cluster.Peer, &in.Peer}, {h.Admin, cfg.Admin.Address, &in.Admin},
	} {
		ln, err := listenerOf(firstFD + i)
		if err != nil {
			return in, nil, fmt.Errorf("take over: %w", err)
		}
		if l.was != l.is {
			ln.Close() // the address has changed
			continue
		}
		*l.ln = ln
	}
	return in, &takeover{os.NewFile(firstFD+3, "to the old process"), os.NewFile(firstFD+4, "from the old process")}, nil
}

// maxListenFDs bounds what LISTEN_FDS is believed.
const maxListenFDs = 3

func inheritFromSystemd(env func(string) (string, bool)) (in edge.Inherited, err error) {
	pid, _ := env("LISTEN_PID")
	count, ok := env("LISTEN_FDS")
	if !ok || pid != strconv.Itoa(os.Getpid()) {
		return in, nil // none, or meant for a parent of this process
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > maxListenFDs {
		return in, fmt.Errorf("LISTEN_FDS=%q: want up to %d sockets, named client, peer and admin", count, maxListenFDs)
	}
	text, _ := env("LISTEN_FDNAMES")
	names := strings.Split(text, ":")
	if text == "" || n == 1 && names[0] == "unknown" {
		names = []string{"client"}
	}
	if n > 0 && len(names) != n {
		return in, fmt.Errorf("LISTEN_FDNAMES=%q: want a name for each of the %d sockets: FileDescriptorName=client, peer or admin", text, n)
	}
	for i := range n {
		slot := map[string]*net.Listener{"client": &in.Client, "peer": &in.Peer, "admin": &in.Admin}[names[i]]
		if slot == nil || *slot != nil {
			return in, fmt.Errorf("LISTEN_FDNAMES=%q: %q is unknown or there twice: want FileDescriptorName=client, peer or admin", text, names[i])
		}
		if *slot, err = listenerOf(firstFD + i); err != nil {
			return in, fmt.Errorf("the socket %q of systemd: %w", names[i], err)
		}
	}
	return in, nil
}

// listenerOf takes a descriptor over.
func listenerOf(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "listener "+strconv.Itoa(fd))
	if f == nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	defer f.Close() // the listener has a duplicate, closed on exec
	return net.FileListener(f)
}
