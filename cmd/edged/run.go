package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"edged/edge"
)

type runCmd struct {
	Config    string `short:"c" placeholder:"FILE" help:"Configuration file; - is standard input. Without one, --origin is enough."`
	overrides `group:"Instead of the file's keys:"`
	logFlags
}

func (runCmd) Help() string {
	return `The node prints one line of JSON to standard output when it serves, with the addresses that it
really listens on, and its log to standard error.

Examples:

    edged run --origin http://127.0.0.1:9000
    edged run -c /etc/edged/edged.yaml
    edged run --name b --listen :8081 --admin 127.0.0.1:9902 --origin http://127.0.0.1:9000 \
        --gossip 127.0.0.1:7956 --peer 127.0.0.1:7957 --join 127.0.0.1:7946

Signals: SIGTERM and SIGINT drain (the key drain bounds it, 30s), a second one stops at once;
SIGHUP reads the configuration again, as edged reload does; SIGUSR2 starts the program file anew, hands it the
listening sockets and the node's place in the cluster, and drains: an upgrade without a refused connection.
Sockets from systemd are taken over by their names client, peer and admin, and it is told of the state (sd_notify).
Exit code: 0 after a clean stop, 1 for a failure, 2 for wrong usage or configuration.`
}

type logFlags struct {
	LogFormat string `enum:",text,json" default:"" placeholder:"FORM" help:"Form of the log, instead of log.format: text or json."`
	LogLevel  string `enum:",debug,info,warn,error" default:"" placeholder:"LEVEL" help:"Least level that is logged, instead of log.level: debug, info, warn or error."`
}

// override puts the flags that were given in the configuration's place.
func (f logFlags) override(log *edge.Log) {
	log.Format, log.Level = cmp.Or(f.LogFormat, log.Format), cmp.Or(f.LogLevel, log.Level)
}

func newLogger(w io.Writer, cfg edge.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // unreachable: the configuration has been checked
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// Run runs the node until a signal, or until the node stops by itself.
func (c *runCmd) Run(p *process) error {
	src := source{file: c.Config, stdin: p.stdin, flags: c.overrides, env: p.env, host: p.host}
	l, err := src.load()
	if err != nil {
		return usageError{err}
	}
	c.override(&l.config.Log)
	queue := newLogQueue(p.stderr)
	defer queue.Close()
	log := newLogger(queue, l.config.Log)
	l.warn(log)

	// Before New, so that a signal that comes while it starts is not lost.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR2)
	defer signal.Stop(signals)

	inherited, old, err := inherit(p.env, l.config)
	if err != nil {
		return err
	}
	notify := newNotifier(p.env, log)
	r := &reloader{src: src, log: log, notify: notify}
	r.complete = func(cfg edge.Config) edge.Config { return c.complete(cfg, log, queue) }
	cfg := r.complete(l.config)
	cfg.Inherited, cfg.Reread = inherited, r.reload
	if old != nil {
		cfg.BeforeJoin = old.release
	}
	r.mu.Lock()
	r.node, err = edge.New(cfg)
	r.mu.Unlock()
	if err != nil {
		return l.explain(err)
	}
	node := r.node
	limitMemory(p, node)
	if err := printReady(p.stdout, l.config.Name, node.Addrs()); err != nil {
		return errors.Join(fmt.Errorf("print the ready line: %w", err), node.Close())
	}
	if old != nil {
		if err := old.ready(); err != nil {
			// The old process is gone, or it would have ended this one.
			log.Warn("the process that was taken over from did not hear of it", "err", err)
		}
	}
	notify.tell("READY=1", "STATUS=serving on "+node.Addrs().Client)
	alive, dead := context.WithCancel(context.Background())
	defer dead()
	go notify.watch(alive, node.Addrs().Admin)

	upgraded := make(chan error, 1)
	var up *upgrade // under way
	for {
		select {
		case sig := <-signals:
			switch {
			case sig == syscall.SIGHUP && up == nil:
				go r.reload()
			case sig == syscall.SIGHUP:
				log.Warn("a reload while another process takes over is ignored: that one has read the configuration")
			case sig == syscall.SIGUSR2 && up == nil && c.Config != "-":
				up = newUpgrade(node, l.config, log)
				log.Info("starting another process that takes over")
				go func() { upgraded <- up.begin(p) }()
			case sig == syscall.SIGUSR2:
				log.Warn("no other process is started: one is under way, or the configuration came from standard input")
			default:
				if up != nil {
					up.cancel()
				}
				log.Info("stopping: finishing the requests in flight", "signal", sig.String(), "at_most", l.config.Drain)
				notify.tell("STOPPING=1")
				return stop(node, l.config.Drain, signals, log)
			}
		case err := <-upgraded:
			if err == nil {
				return c.goAway(node, up, notify, dead, l.config.Drain)
			}
			log.Error("no other process has taken over", "err", err)
			if up.released {
				// Outside of the cluster purges would not reach this node, so it
				// must not go on.
				notify.tell("STOPPING=1")
				return errors.Join(fmt.Errorf("the take-over failed after this node had left the cluster: %w", err), stop(node, l.config.Drain, signals, log))
			}
			up = nil
		case <-node.Done():
			return node.Err()
		}
	}
}

// goAway ends this process, now that another one serves in its place.
func (c *runCmd) goAway(node *edge.Node, up *upgrade, notify *notifier, dead func(), drain time.Duration) error {
	dead()
	notify.tell("MAINPID="+strconv.Itoa(up.pid), "READY=1")
	up.log.Info("another process has taken over: finishing the requests in flight", "pid", up.pid, "at_most", drain)
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	return node.HandOver(ctx)
}

// complete adds what only the process knows.
func (c *runCmd) complete(cfg edge.Config, log *slog.Logger, queue *logQueue) edge.Config {
	cfg.Version = readBuild().Version
	cfg.Logger, cfg.LogDropped = log, queue.Dropped
	c.override(&cfg.Log)
	return cfg
}

// stopAtOnce bounds a stop that does not wait for requests.
const stopAtOnce = 3 * time.Second

// memoryEvery is how often the runtime is told anew what to stay below.
const memoryEvery = 5 * time.Second

// limitMemory keeps telling the runtime, until the node stops, to stay near
// what the configuration promises, unless the operator has said something else
// with GOMEMLIMIT.
func limitMemory(p *process, node *edge.Node) {
	if _, set := p.env("GOMEMLIMIT"); set {
		return
	}
	debug.SetMemoryLimit(node.MemoryLimit())
	go func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-node.Done():
				return
			case <-tick.C:
				debug.SetMemoryLimit(node.MemoryLimit())
			}
		}
	}()
}

// stop drains the node; a second signal ends that.
func stop(node *edge.Node, drain time.Duration, signals <-chan os.Signal, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- node.Shutdown(ctx) }()
	for {
		select {
		case err := <-drained:
			return err
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				continue
			}
			log.Warn("stopping at once: requests in flight are cut", "signal", sig.String())
			closed := make(chan error, 1)
			go func() { closed <- node.Close() }()
			select {
			case <-closed:
			case <-time.After(stopAtOnce):
				// The process ends now; that ends everything else.
			}
			return fmt.Errorf("stopped at once by a second signal (%v)", sig)
		}
	}
}

// printReady writes the one line of standard output: those who started the node wait for it.
func printReady(w io.Writer, name string, a edge.Addrs) error {
	line, err := json.Marshal(struct {
		Event  string `json:"event"`
		Name   string `json:"name"`
		Client string `json:"client"`
		Peer   string `json:"peer"`
		Gossip string `json:"gossip"`
		Admin  string `json:"admin"`
		PID    int    `json:"pid"`
	}{"ready", name, a.Client, a.Peer, a.Gossip, a.Admin, os.Getpid()})
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
