package negative

import (
	"context"
	"io"
	"log/slog"
	"net/http"
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

// CatalogConfig says where a site's catalog comes from.
type CatalogConfig struct {
	Site    string // for the log
	File    string
	URL     string
	Mode    Mode          // empty: off
	Refresh time.Duration // 0: 60 s
	MaxAge  time.Duration // enforce ends when the source was last confirmed so long ago; 0: ten times Refresh
	Rate    float64       // chance that an absent path is taken for an existing one; 0: 0.1 %
	// Normalize brings a path into the form that Contains will be asked for;
	// nil: as it stands in the source.
	Normalize func(path string) string
	Client    *http.Client // for URL; nil: http.DefaultClient
	Logger    *slog.Logger // nil discards
}

// Catalog knows the paths that exist on one site.
type Catalog struct{}

// Verdict is what a catalog says of one request.
type Verdict struct {
	Absent bool // the path is definitely not in the catalog
	Refuse bool // answer 404 without forwarding
	// Report asks the caller to tell the outcome of the forward to
	// [Catalog.Observed].
	Report bool
}

// CatalogStats is a moment's view of a [Catalog].
type CatalogStats struct {
	Mode                        Mode
	Effective                   Mode   // what it does now
	Reason                      string // why Effective is not Mode: loading, stale, contradicted
	Paths                       int64
	Bytes                       int64
	Age                         time.Duration // since the source was last confirmed
	Loads                       uint64
	Failures                    uint64 // loads that kept the older one
	WouldRefuse, Refused, Wrong uint64
}

// NewCatalog returns a catalog that is empty until the first load.
func NewCatalog(cfg CatalogConfig) (*Catalog, error) { return &Catalog{}, nil }

// Run keeps the catalog up to date until the context ends.
func (c *Catalog) Run(ctx context.Context) {}

// Load reads a catalog and puts it in place of the old one; on an error the
// old one stays.
func (c *Catalog) Load(r io.Reader, now time.Time) error { return nil }

// Contains reports whether the path may exist; true while nothing is loaded.
func (c *Catalog) Contains(path string) bool { return true }

// Check decides on a request for the path.
func (c *Catalog) Check(path string, now time.Time) Verdict { return Verdict{} }

// Observed tells what the origin really said of a path whose [Verdict] asked
// to report.
func (c *Catalog) Observed(path string, exists bool, now time.Time) {}

// Add says that the paths exist. Remove says that they don't.
func (c *Catalog) Add(paths []string, now time.Time) error    { return nil }
func (c *Catalog) Remove(paths []string, now time.Time) error { return nil }

// Stats returns the current numbers.
func (c *Catalog) Stats(now time.Time) CatalogStats { return CatalogStats{} }
