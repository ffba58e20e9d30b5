package negative

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is what a catalog may decide.
type Mode string

// The modes.
const (
	ModeOff     Mode = "off"
	ModeObserve Mode = "observe" // count what would have been refused
	ModeEnforce Mode = "enforce" // refuse what does not exist
)

const (
	// maxOverlay bounds the paths added, and those removed, beside the source.
	maxOverlay = 1 << 16
	// overlayAge is how long an added path outlives newer sources that do not
	// have it: a source may have been written before the addition.
	overlayAge = time.Hour
	// sampleEvery is one in how many refusals is forwarded nevertheless, to
	// see whether the catalog is right.
	sampleEvery = 1000
	// shrinkTo is the part of the paths that are loaded which a newer source
	// must have at least: one of fewer was likely written by something that
	// broke down half way.
	shrinkTo = 0.5
	// shrinkFrom is the number of paths from which on that is looked at.
	shrinkFrom = 100
)

// ErrOverlayFull says that a catalog holds as many changes beside its source
// as it can; the next load makes room.
var ErrOverlayFull = fmt.Errorf("the catalog has %d changes beside its source already: let it load again", maxOverlay)

// CatalogConfig says where a site's catalog comes from.
type CatalogConfig struct {
	Site    string        // for the log
	File    string        // either a file, looked at by its size and modification time,
	URL     string        // or an http or https URL, asked with its ETag
	Mode    Mode          // empty: off
	Refresh time.Duration // 0: 60 s
	// MaxAge ends enforcing when the source was last confirmed so long ago;
	// 0: ten times Refresh. Shorter trusts less, longer survives longer
	// outages of the source.
	MaxAge time.Duration
	// Rate is the chance that an absent path is taken for an existing one,
	// 0.00001 to 0.1; 0: 0.001, which takes 2 bytes a path.
	Rate float64
	// MaxPaths bounds the source; 0: 50 million. While it is read, a path
	// takes 8 bytes more.
	MaxPaths int
	// Normalize brings a path of the source, of Add and of Remove into the
	// form that Contains is asked for; nil: as it stands there.
	Normalize func(path string) string
	Client    *http.Client // for URL; nil: http.DefaultClient
	Logger    *slog.Logger // nil discards
}

// Catalog knows the paths that exist on one site, without their queries. What
// it calls absent is absent from its source; of what it calls existing, a
// small part is not (see CatalogConfig.Rate).
//
// A refusal never outlives its truth: a catalog that was not confirmed for too
// long, or that the origin has contradicted, only observes until a newer one
// is loaded. All methods are safe for concurrent use; Contains and Check take
// no lock.
type Catalog struct {
	cfg  CatalogConfig
	seed maphash.Seed
	base time.Time // confirmed is relative to it

	set          atomic.Pointer[loadedSet] // nil: none yet
	removed      atomic.Pointer[map[uint64]time.Time]
	confirmed    atomic.Int64 // when the source was last known to say this
	contradicted atomic.Bool
	incomplete   atomic.Bool // changes may be missing

	wouldRefuse, refused, wrong, loads, failures, shrunk, dropped atomic.Uint64

	mu    sync.Mutex // guards added, and all writing to set and removed
	added map[uint64]time.Time
}

type loadedSet struct {
	*pathSet
	paths int
}

// Verdict is what a catalog says of one request.
type Verdict struct {
	Absent bool // the path is definitely not in the catalog
	Refuse bool // answer 404 without forwarding
	// Report asks the caller to tell the outcome of the forward to
	// [Catalog.Observed].
	Report bool
}

// CatalogStats is a moment's view of a [Catalog]; the counters are since the
// beginning.
type CatalogStats struct {
	Mode        Mode
	Effective   Mode   // what it does now
	Reason      string // why Effective is not Mode: "loading", "stale", "contradicted" or "incomplete"
	Paths       int    // of the last load; a path listed twice counts twice
	Bytes       int64
	Age         time.Duration // since the source was last confirmed
	Loads       uint64
	Failures    uint64 // loads that kept the older one
	Shrunk      uint64 // of them, those of a source that had lost half of its paths
	Dropped     uint64 // changes for which there was no room
	WouldRefuse uint64 // requests for what is absent, refused or not
	Refused     uint64
	Wrong       uint64 // of those forwarded, the ones that did exist
}

// NewCatalog returns a catalog that calls nothing absent until its first load.
func NewCatalog(cfg CatalogConfig) (*Catalog, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch cfg.Mode {
	case "":
		cfg.Mode = ModeOff
	case ModeOff, ModeObserve, ModeEnforce:
	default:
		bad("mode %q: want off, observe or enforce", cfg.Mode)
	}
	if cfg.File != "" && cfg.URL != "" {
		bad("there is a file and a url: want one of them")
	}
	if cfg.URL != "" {
		if u, err := url.Parse(cfg.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			bad("%q is not an http or https URL", cfg.URL)
		}
	}
	if cfg.Refresh == 0 {
		cfg.Refresh = time.Minute
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 10 * cfg.Refresh
	}
	if cfg.Refresh < 0 || cfg.MaxAge < 0 {
		bad("refresh %v and max age %v: want more than nothing", cfg.Refresh, cfg.MaxAge)
	}
	if cfg.Rate == 0 {
		cfg.Rate = 0.001
	}
	if _, err := newPathSet(0, cfg.Rate); err != nil {
		bad("%w", err)
	}
	if cfg.MaxPaths == 0 {
		cfg.MaxPaths = 50_000_000
	}
	if cfg.MaxPaths < 0 {
		bad("at most %d paths: want one at least", cfg.MaxPaths)
	}
	if cfg.Client == nil {
		cfg.Client = http.DefaultClient
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("catalog of site %q: %w", cfg.Site, errors.Join(errs...))
	}
	c := &Catalog{cfg: cfg, seed: maphash.MakeSeed(), base: time.Now(), added: make(map[uint64]time.Time)}
	c.removed.Store(&map[uint64]time.Time{})
	return c, nil
}

// hash stands for a path everywhere in a catalog. It is of 64 bits and keyed
// by a secret of this process: that two of n paths share one has a chance of
// n^2 / 2^65, 3 in a million for ten million.
func (c *Catalog) hash(path string) uint64 { return maphash.String(c.seed, path) }

// hashSource hashes a path that is not yet in its normal form.
func (c *Catalog) hashSource(path []byte) uint64 {
	if c.cfg.Normalize == nil {
		return maphash.Bytes(c.seed, path)
	}
	return c.hash(c.cfg.Normalize(string(path)))
}

// Load reads a catalog (one path to a line or JSON lines, in gzip or plain)
// and puts it in place of the old one; on an error the old one stays. One that
// has less than half of the paths of the old one is such an error: where that
// is meant, a new Catalog takes it, which a reload of the configuration makes.
func (c *Catalog) Load(r io.Reader, now time.Time) error {
	err := c.load(r, false, now, time.Time{})
	if err != nil {
		c.failures.Add(1)
	}
	return err
}

// load is Load of a source that was last modified then; zero: not known.
func (c *Catalog) load(r io.Reader, whole bool, began, modified time.Time) error {
	set, err := c.read(r, whole)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.set.Load(); old != nil && old.paths >= shrinkFrom && float64(set.paths) < shrinkTo*float64(old.paths) {
		c.shrunk.Add(1)
		c.cfg.Logger.Error("the catalog's source has lost more than half of its paths: it is not believed; reload the configuration if that is right",
			"site", c.cfg.Site, "paths", set.paths, "before", old.paths)
		return fmt.Errorf("there are %d paths in it, and there were %d", set.paths, old.paths)
	}
	for h, at := range c.added {
		if began.Sub(at) > overlayAge {
			delete(c.added, h)
		} else {
			set.add(h)
		}
	}
	// What was removed before the source was written and is in it nevertheless,
	// has come back; when it was written is not always known.
	removed := maps.Clone(*c.removed.Load())
	maps.DeleteFunc(removed, func(_ uint64, at time.Time) bool {
		older := !modified.IsZero() && modified.Before(at) && began.Sub(at) <= overlayAge
		return at.Before(began) && !older
	})
	c.set.Store(set)
	c.removed.Store(&removed)
	c.confirm(began)
	doubted := c.incomplete.Swap(false)
	if c.contradicted.Swap(false) || doubted {
		c.cfg.Logger.Info("catalog is trusted again after a load", "site", c.cfg.Site)
	}
	c.loads.Add(1)
	return nil
}

func (c *Catalog) read(r io.Reader, whole bool) (*loadedSet, error) {
	// How many there are decides how large the set is.
	const chunk = 1 << 16
	var chunks [][]uint64
	n := 0
	err := readPaths(r, whole, func(path []byte) error {
		if n == c.cfg.MaxPaths {
			return fmt.Errorf("there are more than %d paths", n)
		}
		if n%chunk == 0 {
			chunks = append(chunks, make([]uint64, 0, chunk))
		}
		last := len(chunks) - 1
		chunks[last] = append(chunks[last], c.hashSource(path))
		n++
		return nil
	})
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("there is no path in it")
	}
	set, err := newPathSet(n+maxOverlay, c.cfg.Rate)
	if err != nil {
		return nil, err
	}
	for _, hashes := range chunks {
		for _, h := range hashes {
			set.fill(h)
		}
	}
	return &loadedSet{set, n}, nil
}

// confirm says that what is loaded was true at that time.
func (c *Catalog) confirm(at time.Time) { c.confirmed.Store(int64(at.Sub(c.base))) }

func (c *Catalog) age(now time.Time) time.Duration {
	return now.Sub(c.base) - time.Duration(c.confirmed.Load())
}

// Contains reports whether the path may exist; true while nothing is loaded.
func (c *Catalog) Contains(path string) bool {
	set := c.set.Load()
	if set == nil {
		return true
	}
	h := c.hash(path)
	if removed := *c.removed.Load(); len(removed) > 0 {
		if _, gone := removed[h]; gone {
			return false
		}
	}
	return set.has(h)
}

// Lists reports whether a catalog is loaded, and the path in it.
func (c *Catalog) Lists(path string) bool {
	return c.set.Load() != nil && c.Contains(path)
}

// effective returns what the catalog does now, and why that is not its mode.
func (c *Catalog) effective(now time.Time) (Mode, string) {
	switch {
	case c.cfg.Mode == ModeOff:
		return ModeOff, ""
	case c.set.Load() == nil:
		return ModeObserve, "loading"
	case c.cfg.Mode == ModeObserve:
		return ModeObserve, ""
	case c.contradicted.Load():
		return ModeObserve, "contradicted"
	case c.incomplete.Load():
		return ModeObserve, "incomplete"
	case c.age(now) > c.cfg.MaxAge:
		return ModeObserve, "stale"
	}
	return ModeEnforce, ""
}

// Check decides on a request for the path, and counts it.
func (c *Catalog) Check(path string, now time.Time) Verdict {
	if c.cfg.Mode == ModeOff || c.Contains(path) {
		return Verdict{}
	}
	n := c.wouldRefuse.Add(1)
	if mode, _ := c.effective(now); mode != ModeEnforce || n%sampleEvery == 1 {
		return Verdict{Absent: true, Report: true}
	}
	c.refused.Add(1)
	return Verdict{Absent: true, Refuse: true}
}

// Observed tells what the origin really said of a path whose [Verdict] asked
// to report. One that exists contradicts the catalog: it is added, and nothing
// is refused until the next load of a newer source.
func (c *Catalog) Observed(path string, exists bool, now time.Time) {
	if !exists || c.Contains(path) { // it may have been added since
		return
	}
	c.wrong.Add(1)
	c.change([]uint64{c.hash(path)}, nil, now) // when there is no room, the contradiction still counts
	if c.cfg.Mode == ModeEnforce && !c.contradicted.Swap(true) {
		c.cfg.Logger.Error("the origin has a path that the catalog calls absent: nothing is refused until a newer catalog is loaded",
			"site", c.cfg.Site, "path", path)
	}
}

// Doubt says that changes were missed, additions perhaps among them: nothing is
// refused until a newer source is loaded.
func (c *Catalog) Doubt() {
	if !c.incomplete.Swap(true) && c.cfg.Mode == ModeEnforce {
		c.cfg.Logger.Error("changes of the catalog were missed: nothing is refused until a newer catalog is loaded", "site", c.cfg.Site)
	}
}

// Change says that some paths exist and others don't, from a moment on. Of two
// changes of one path the later one holds, in whatever order they come; of one
// change, the removal. An addition holds for an hour at least, also when a
// source without the path is loaded meanwhile; a removal until a source that
// was written after it is loaded, or one of which that is not known. When there
// is no room for all, none is changed and the error is [ErrOverlayFull].
func (c *Catalog) Change(add, remove []string, at time.Time) error {
	return c.change(c.hashes(add), c.hashes(remove), at)
}

// Room returns ErrOverlayFull when a change of so many paths has no room.
func (c *Catalog) Room(add, remove int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roomLocked(add, remove)
}

func (c *Catalog) roomLocked(add, remove int) error {
	if len(c.added)+add > maxOverlay || len(*c.removed.Load())+remove > maxOverlay {
		return ErrOverlayFull
	}
	return nil
}

// Add says that the paths exist; see [Catalog.Change].
func (c *Catalog) Add(paths []string, now time.Time) error {
	return c.change(c.hashes(paths), nil, now)
}

// Remove says that the paths don't exist; see [Catalog.Change].
func (c *Catalog) Remove(paths []string, now time.Time) error {
	return c.change(nil, c.hashes(paths), now)
}

func (c *Catalog) hashes(paths []string) []uint64 {
	hs := make([]uint64, len(paths))
	for i, p := range paths {
		hs[i] = c.hashSource([]byte(p))
	}
	return hs
}

func (c *Catalog) change(add, remove []uint64, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	removed := *c.removed.Load()
	// What is there already takes no more room.
	newer := func(hs []uint64, in map[uint64]time.Time) (n int) {
		for _, h := range hs {
			if _, ok := in[h]; !ok {
				n++
			}
		}
		return n
	}
	if err := c.roomLocked(newer(add, c.added), newer(remove, removed)); err != nil {
		c.dropped.Add(1)
		return err
	}
	back := func(h uint64) bool { _, gone := removed[h]; return gone }
	if len(remove) > 0 || slices.ContainsFunc(add, back) {
		removed = maps.Clone(removed) // readers hold the old one
	}
	set := c.set.Load()
	for _, h := range add {
		if removed[h].After(now) {
			continue
		}
		if back(h) {
			delete(removed, h)
		}
		c.added[h] = now
		if set != nil {
			set.add(h)
		}
	}
	for _, h := range remove {
		if c.added[h].After(now) {
			continue
		}
		delete(c.added, h)
		removed[h] = now
	}
	c.removed.Store(&removed)
	return nil
}

// Stats returns the current numbers.
func (c *Catalog) Stats(now time.Time) CatalogStats {
	mode, reason := c.effective(now)
	st := CatalogStats{
		Mode: c.cfg.Mode, Effective: mode, Reason: reason,
		Loads: c.loads.Load(), Failures: c.failures.Load(), Shrunk: c.shrunk.Load(), Dropped: c.dropped.Load(),
		WouldRefuse: c.wouldRefuse.Load(), Refused: c.refused.Load(), Wrong: c.wrong.Load(),
	}
	if set := c.set.Load(); set != nil {
		st.Paths = set.paths
		st.Bytes = int64(len(set.words)) * 8
		st.Age = c.age(now)
	}
	return st
}
