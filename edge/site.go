package edge

import (
	"context"
	"strings"

	"edged/edge/negative"
	"edged/edge/rfc9111"
	"edged/shield"
)

// site is one site of the configuration, ready for use. It is immutable but
// for what its pool learns.
type site struct {
	Site
	pool    *shield.Pool
	limit   *shield.Limit // of requests to the origin
	absent  *absences
	policy  rfc9111.Policy
	catalog *negative.Catalog // nil: none
	retired context.CancelFunc
}

// retire ends what the site runs and closes its connections.
func (s *site) retire() {
	s.retired()
	s.pool.Close()
}

// inherit takes over the limit and the counts of the site that had this name
// before, so that what is at the origin still counts, and no counter falls. It is for a site that is not in use yet.
func (s *site) inherit(t *siteTable) {
	for _, o := range t.all {
		if o.Name == s.Name && o.limit.Resize(limitConfig(s.Origin)) == nil {
			s.limit, s.absent = o.limit, o.absent
		}
	}
}

// bypassed reports whether the site's rules send this path past the cache.
func (s *site) bypassed(path string) bool {
	for _, p := range s.Bypass {
		if matchPath(p, path) {
			return true
		}
	}
	return false
}

// siteTable finds the site of a host. It is immutable.
type siteTable struct {
	all    []*site
	exact  map[string]*site
	suffix map[string]*site // by ".example.com"
	any    *site
}

func newSiteTable(sites []*site) *siteTable {
	t := &siteTable{all: sites, exact: map[string]*site{}, suffix: map[string]*site{}}
	for _, s := range sites {
		if len(s.Hosts) == 0 {
			t.any = s
		}
		for _, h := range s.Hosts {
			switch h = strings.ToLower(h); {
			case h == "*":
				t.any = s
			case strings.HasPrefix(h, "*."):
				t.suffix[h[1:]] = s
			default:
				t.exact[h] = s
			}
		}
	}
	return t
}

// find returns the site of a canonical host, with or without port: the exact
// name, else the longest wildcard, else the site of every host; nil when
// there is none.
func (t *siteTable) find(host string) *site {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if s := t.exact[host]; s != nil {
		return s
	}
	if len(t.suffix) > 0 {
		for rest := host; ; {
			i := strings.IndexByte(rest, '.')
			if i < 0 {
				break
			}
			if s := t.suffix[rest[i:]]; s != nil {
				return s
			}
			rest = rest[i+1:]
		}
	}
	return t.any
}
