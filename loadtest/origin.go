package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// OriginConfig is how an [Origin] behaves.
type OriginConfig struct {
	Address string        // host:port to listen on; empty: a free port of 127.0.0.1
	Latency time.Duration // before each answer under /k/ and /absent/
	// Keys is the number of existing keys: higher ones are 404. 0: all exist.
	Keys uint64
	// MaxAge of the answers under /k/; 0: an hour.
	MaxAge time.Duration
}

// Origin is a web server for caches to stand in front of. Under /k/ and
// /absent/ it has the content of the load test, made from the paths; beside
// that a small site for people: pages with links and images, a slow path, a
// clock.
type Origin struct {
	cfg    OriginConfig
	server *http.Server
	addr   string

	disturbed atomic.Pointer[Disturbance] // nil: not

	mu     sync.Mutex
	counts map[string]int64
	faulty float64       // failures due, of a share of the answers
	served chan struct{} // closed when Serve has returned
}

// The classes that [Origin.Counts] tells apart.
const (
	ClassKey    = "key"
	ClassAbsent = "absent" // every 404
	ClassPage   = "page"
	ClassImage  = "image"
	ClassSlow   = "slow"
	ClassClock  = "clock"
	ClassFailed = "failed" // 503 by a [Disturbance]
)

// NewOrigin starts an origin. It serves until Close.
func NewOrigin(cfg OriginConfig) (*Origin, error) {
	if cfg.Address == "" {
		cfg.Address = "127.0.0.1:0"
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = time.Hour
	}
	ln, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("start the origin: %w", err)
	}
	o := &Origin{cfg: cfg, addr: ln.Addr().String(), counts: map[string]int64{}, served: make(chan struct{})}
	o.server = &http.Server{
		Handler:           o.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // broken connections are the driver's to report
	}
	go func() {
		defer close(o.served)
		o.server.Serve(ln)
	}()
	return o, nil
}

// Addr returns the host:port it listens on.
func (o *Origin) Addr() string { return o.addr }

// URL returns its base URL, without a slash at the end.
func (o *Origin) URL() string { return "http://" + o.addr }

// Close stops it, cutting what runs after a second. It may be called twice.
func (o *Origin) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := o.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = o.server.Close()
	}
	<-o.served
	return err
}

// Counts returns the number of requests so far by class.
func (o *Origin) Counts() map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.counts)
}

func (o *Origin) count(class string) {
	o.mu.Lock()
	o.counts[class]++
	o.mu.Unlock()
}

func (o *Origin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(keyPrefix, o.serveKey)
	mux.HandleFunc("/{$}", o.serveIndex)
	mux.HandleFunc("/pages/{n}", o.servePage)
	mux.HandleFunc("/images/{file}", o.serveImage)
	mux.HandleFunc("/slow", o.serveSlow)
	mux.HandleFunc("/clock", o.serveClock)
	mux.HandleFunc("/clock/now", o.serveClock)
	mux.HandleFunc("/", o.serveAbsent)
	return mux
}

// Disturbance is what is wrong with an origin.
type Disturbance struct {
	Latency time.Duration // before each answer, in addition
	Errors  Share         // of the answers are 503
}

// Disturb has the origin misbehave under /k/ and /absent/ from now on; the zero
// Disturbance ends it.
func (o *Origin) Disturb(d Disturbance) { o.disturbed.Store(&d) }

// fails is the disturbance's part in an answer: it waits, and reports whether
// it has answered in the origin's place.
func (o *Origin) fails(w http.ResponseWriter, r *http.Request) bool {
	d := o.disturbed.Load()
	if d == nil || *d == (Disturbance{}) {
		return false
	}
	o.mu.Lock()
	o.faulty += float64(d.Errors)
	failed := o.faulty >= 1
	if failed {
		o.faulty--
	}
	o.mu.Unlock()
	if failed {
		o.count(ClassFailed)
	}
	here := hold(r, d.Latency)
	if failed && here {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "The origin fails on purpose.", http.StatusServiceUnavailable)
	}
	return failed
}

// hold waits for d; it reports whether the client is still there.
func hold(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// keyTags is the number of different tags among the keys, so that a tag covers
// a part of them.
const keyTags = 100

func (o *Origin) serveKey(w http.ResponseWriter, r *http.Request) {
	if o.fails(w, r) {
		return
	}
	n, size, ok := parseKeyPath(r.URL.Path)
	if !ok || o.cfg.Keys > 0 && n >= o.cfg.Keys {
		o.answerAbsent(w, r)
		return
	}
	o.count(ClassKey)
	if !hold(r, o.cfg.Latency) {
		return
	}
	c := contentOf(r.URL.Path, size)
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(o.cfg.MaxAge.Seconds())))
	h.Set("Surrogate-Key", "k"+strconv.FormatUint(n%keyTags, 10))
	h.Set("ETag", `"`+strconv.FormatUint(c.seed, 16)+`"`)
	http.ServeContent(w, r, "", time.Time{}, c.reader())
}

func (o *Origin) serveAbsent(w http.ResponseWriter, r *http.Request) {
	if !o.fails(w, r) {
		o.answerAbsent(w, r)
	}
}

func (o *Origin) answerAbsent(w http.ResponseWriter, r *http.Request) {
	o.count(ClassAbsent)
	if !hold(r, o.cfg.Latency) {
		return
	}
	http.Error(w, "There is nothing here.", http.StatusNotFound)
}
