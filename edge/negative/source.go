package negative

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"time"
)

const (
	// firstRetry is the wait after a failure while nothing is loaded.
	firstRetry = 5 * time.Second
	// maxDownload bounds one download, so that a source that hangs is asked
	// again.
	maxDownload = 10 * time.Minute
)

// source is what a catalog knows of the state of its file or URL.
type source struct {
	etag  string
	mtime time.Time
	size  int64
}

// Run keeps the catalog up to date until the context ends. Without a source,
// or in mode off, it returns at once.
func (c *Catalog) Run(ctx context.Context) {
	if c.cfg.Mode == ModeOff || c.cfg.File == "" && c.cfg.URL == "" {
		return
	}
	var src source
	was := c.cfg.Mode
	for {
		err := c.refresh(ctx, &src)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.cfg.Logger.Warn("catalog was not loaded, the older one stays", "site", c.cfg.Site, "error", err)
		}
		mode, reason := c.effective(time.Now())
		if mode != was && mode != c.cfg.Mode {
			c.cfg.Logger.Error("catalog only observes", "site", c.cfg.Site, "reason", reason)
		}
		was = mode

		// Between 90 % and 110 %, so that a cluster does not ask as one.
		wait := time.Duration(float64(c.cfg.Refresh) * (0.9 + 0.2*rand.Float64()))
		if c.set.Load() == nil {
			wait = min(wait, firstRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// refresh loads the source when it has changed, and else confirms what is
// loaded.
func (c *Catalog) refresh(ctx context.Context, src *source) error {
	from := c.refreshFile
	if c.cfg.URL != "" {
		from = c.refreshURL
	}
	err := from(ctx, src)
	if err != nil && ctx.Err() == nil {
		c.failures.Add(1)
	}
	return err
}

func (c *Catalog) refreshFile(ctx context.Context, src *source) error {
	now := time.Now()
	info, err := os.Stat(c.cfg.File) // before it is opened: opening a pipe waits
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: c.cfg.File, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return err
	}
	if c.set.Load() != nil && info.ModTime().Equal(src.mtime) && info.Size() == src.size {
		c.confirm(now)
		return nil
	}
	f, err := os.Open(c.cfg.File)
	if err != nil {
		return err
	}
	defer f.Close()
	body := &stableFile{ctx: ctx, f: f, mtime: info.ModTime(), size: info.Size()}
	if err := c.load(body, false, now, info.ModTime()); err != nil {
		return fmt.Errorf("%s: %w", c.cfg.File, err)
	}
	src.mtime, src.size = info.ModTime(), info.Size()
	return nil
}

// stableFile reads a file and fails at its end when the file has changed in
// the meantime: what was read is then of two lists.
type stableFile struct {
	ctx   context.Context
	f     *os.File
	mtime time.Time
	size  int64
}

func (s *stableFile) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.f.Read(p)
	if err == io.EOF {
		if info, serr := s.f.Stat(); serr != nil || !info.ModTime().Equal(s.mtime) || info.Size() != s.size {
			return n, errors.New("the file changed while it was read")
		}
	}
	return n, err
}

func (c *Catalog) refreshURL(ctx context.Context, src *source) error {
	ctx, cancel := context.WithTimeout(ctx, maxDownload)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.URL, nil)
	if err != nil {
		return err
	}
	// Asked for by us, the transport leaves it as it came: readPaths sees that
	// it is gzip, and by its trailer that it is whole.
	req.Header.Set("Accept-Encoding", "gzip")
	if src.etag != "" && c.set.Load() != nil {
		req.Header.Set("If-None-Match", src.etag)
	}
	now := time.Now()
	resp, err := c.cfg.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && req.Header.Get("If-None-Match") != "":
		c.confirm(now)
		return nil
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: answered %s", c.cfg.URL, resp.Status)
	}
	// Whoever sends no valid one gets the zero time.
	modified, _ := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err := c.load(resp.Body, resp.ContentLength >= 0, now, modified); err != nil {
		return fmt.Errorf("%s: %w", c.cfg.URL, err)
	}
	src.etag = resp.Header.Get("ETag")
	return nil
}
