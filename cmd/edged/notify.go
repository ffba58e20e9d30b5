package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// A notifier tells the service manager how the process is, as sd_notify(3)
// has it: datagrams of lines VAR=VALUE to the socket that NOTIFY_SOCKET names.
// The protocol is these few lines, so no library is imported for it. Without
// the variable it says nothing. Safe for concurrent use.
type notifier struct {
	socket   string
	watchdog time.Duration // how often the manager wants to hear; 0: never
	log      *slog.Logger
}

func newNotifier(env func(string) (string, bool), log *slog.Logger) *notifier {
	n := &notifier{log: log}
	n.socket, _ = env("NOTIFY_SOCKET")
	if strings.HasPrefix(n.socket, "@") {
		n.socket = "\x00" + n.socket[1:] // the abstract name space
	}
	usec, _ := env("WATCHDOG_USEC")
	pid, set := env("WATCHDOG_PID")
	if v, err := strconv.ParseInt(usec, 10, 64); err == nil && v > 0 && v < int64(24*time.Hour/time.Microsecond) && (!set || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(v) * time.Microsecond
	}
	return n
}

// tell sends the lines in one message.
func (n *notifier) tell(lines ...string) {
	if n.socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(strings.Join(lines, "\n")))
		conn.Close()
	}
	if err != nil {
		n.log.Warn("the service manager was not told", "message", strings.Join(lines, " "), "err", err)
	}
}

// watch answers the watchdog at half its interval for as long as the node's
// own health page answers, until ctx ends: a process that hangs is restarted.
func (n *notifier) watch(ctx context.Context, admin string) {
	if n.socket == "" || n.watchdog == 0 {
		return
	}
	client := &http.Client{Timeout: n.watchdog / 2, Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/livez", nil)
		if err == nil {
			var resp *http.Response
			if resp, err = client.Do(req); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					n.tell("WATCHDOG=1")
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			n.log.Error("the node does not answer its own health check", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
