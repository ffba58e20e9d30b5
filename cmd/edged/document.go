package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"edged/edge"
)

// A document is the configuration file as written: one struct per section,
// one field per key, in the file's own order. It is decoded by [decoder],
// printed by [printDocument], and turned into an [edge.Config] by
// [document.config].
//
// A field tagged "positive" must be above zero when the key is present: zero
// would otherwise stand for the default, which is not what one who writes it
// means.
type document struct {
	Name     string          `yaml:"name"`
	Listen   listenSection   `yaml:"listen"`
	Admin    adminSection    `yaml:"admin"`
	Cluster  clusterSection  `yaml:"cluster"`
	Cache    cacheSection    `yaml:"cache"`
	Negative negativeSection `yaml:"negative"`
	Filter   filterSection   `yaml:"filter"`
	Purge    purgeSection    `yaml:"purge"`
	Drain    time.Duration   `yaml:"drain,positive"`
	Log      logSection      `yaml:"log"`
	Tracing  tracingSection  `yaml:"tracing"`
	Sites    []siteSection   `yaml:"sites"`
}

type listenSection struct {
	Address        string `yaml:"address"`
	MaxConnections int    `yaml:"max_connections,positive"`
}

type adminSection struct {
	Address   string `yaml:"address"`
	TokenFile string `yaml:"token_file"`
}

type purgeSection struct {
	StateDir string `yaml:"state_dir"`
	Isolated string `yaml:"isolated"`
}

type clusterSection struct {
	Role      string   `yaml:"role"`
	Gossip    string   `yaml:"gossip"`
	Peer      string   `yaml:"peer"`
	Advertise string   `yaml:"advertise"`
	Join      []string `yaml:"join"`
	KeyFile   string   `yaml:"key_file"`

	TLS clusterTLSSection `yaml:"tls"`
}

type clusterTLSSection struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	CAFile   string `yaml:"ca_file"`
}

type cacheSection struct {
	Memory     size               `yaml:"memory,positive"`
	MaxObject  size               `yaml:"max_object,positive"`
	Partitions []partitionSection `yaml:"partitions"`
}

type partitionSection struct {
	Name              string       `yaml:"name"`
	Match             matchSection `yaml:"match,omitempty"`
	Share             rate         `yaml:"share"`
	FalsePositiveRate rate         `yaml:"false_positive_rate,positive"`
}

type matchSection struct {
	Path []string `yaml:"path"`
}

type negativeSection struct {
	Capacity      size           `yaml:"capacity,positive"`
	TTL           *time.Duration `yaml:"ttl"` // 0s: an absence without explicit freshness is not remembered
	MaxCreateRate int            `yaml:"max_create_rate,positive"`
	Statuses      []int          `yaml:"statuses"` // by which an origin says "nothing here", beside 404 and 410
}

type filterSection struct {
	Enabled           *bool  `yaml:"enabled"` // nil: true
	Ask               string `yaml:"ask"`
	Local             *bool  `yaml:"local"` // nil: true
	Keys              int    `yaml:"keys,positive"`
	FalsePositiveRate rate   `yaml:"false_positive_rate,positive"`
	Peers             int    `yaml:"peers,positive"`
}

type logSection struct {
	Format string        `yaml:"format"`
	Level  string        `yaml:"level"`
	Access accessSection `yaml:"access"`
}

type accessSection struct {
	Sample rate           `yaml:"sample"`
	Slow   *time.Duration `yaml:"slow"` // 0s: none is logged for being slow
	Query  bool           `yaml:"query"`
}

type tracingSection struct {
	Endpoint string `yaml:"endpoint"`
	Sample   rate   `yaml:"sample"`
}

type siteSection struct {
	Name              string         `yaml:"name"`
	Hosts             []string       `yaml:"hosts"`
	Origin            originSection  `yaml:"origin"`
	Shield            string         `yaml:"shield"`
	SetCookie         string         `yaml:"set_cookie"`
	RequestDirectives string         `yaml:"request_directives"`
	StaleGrace        time.Duration  `yaml:"stale_grace"`
	Bypass            []string       `yaml:"bypass"`
	Catalog           catalogSection `yaml:"catalog"`
}

type originSection struct {
	URLs    []string       `yaml:"urls"`
	Host    string         `yaml:"host"`
	Timeout timeoutSection `yaml:"timeout"`

	MaxConcurrent int           `yaml:"max_concurrent"` // 0: no limit
	Queue         int           `yaml:"queue,positive"`
	KnownShare    rate          `yaml:"known_share,positive"`
	MaxWait       time.Duration `yaml:"max_wait,positive"`
}

type timeoutSection struct {
	Connect   time.Duration `yaml:"connect,positive"`
	FirstByte time.Duration `yaml:"first_byte,positive"`
	Idle      time.Duration `yaml:"idle,positive"`
}

type catalogSection struct {
	File    string        `yaml:"file"`
	URL     string        `yaml:"url"`
	Mode    string        `yaml:"mode"`
	Refresh time.Duration `yaml:"refresh,positive"`
}

type (
	size int64   // bytes, written 512MiB
	rate float64 // a share of one, written 0.5% or 0.005
)

// config is the document as the node wants it. The token, the keys and the
// certificates are not in it: the files that hold them are read by [loadSecrets].
func (d *document) config() edge.Config {
	c := edge.Config{
		Name:   d.Name,
		Listen: edge.Listen(d.Listen),
		Admin:  edge.Admin{Address: d.Admin.Address},
		Cluster: edge.Cluster{
			Role:      edge.Role(d.Cluster.Role),
			Gossip:    d.Cluster.Gossip,
			Peer:      d.Cluster.Peer,
			Advertise: d.Cluster.Advertise,
			Join:      append([]string(nil), d.Cluster.Join...), // none, however that is written
		},
		Cache: edge.Cache{Memory: int64(d.Cache.Memory), MaxObject: int64(d.Cache.MaxObject)},
		Negative: edge.Negative{
			Capacity:      int64(d.Negative.Capacity),
			MaxCreateRate: d.Negative.MaxCreateRate,
			Statuses:      append([]int(nil), d.Negative.Statuses...), // an empty list is none
		},
		Filter: edge.Filter{
			Keys:              d.Filter.Keys,
			FalsePositiveRate: float64(d.Filter.FalsePositiveRate),
			Peers:             d.Filter.Peers,
			Off:               d.Filter.Enabled != nil && !*d.Filter.Enabled,
			Ask:               d.Filter.Ask,
			NoLocal:           d.Filter.Local != nil && !*d.Filter.Local,
		},
		Purge: edge.Purge(d.Purge),
		Drain: d.Drain,
		Log: edge.Log{
			Format: d.Log.Format,
			Level:  d.Log.Level,
			Access: edge.AccessLog{Sample: float64(d.Log.Access.Sample), Query: d.Log.Access.Query},
		},
		Tracing: edge.Tracing{Endpoint: d.Tracing.Endpoint, Sample: float64(d.Tracing.Sample)},
	}
	if slow := d.Log.Access.Slow; slow != nil {
		c.Log.Access.Slow = *slow
		if *slow == 0 {
			c.Log.Access.Slow = -1
		}
	}
	if ttl := d.Negative.TTL; ttl != nil {
		c.Negative.TTL = *ttl
		if *ttl == 0 {
			c.Negative.TTL = -1
		}
	}
	for _, p := range d.Cache.Partitions {
		c.Cache.Partitions = append(c.Cache.Partitions, edge.Partition{
			Name:              p.Name,
			Paths:             p.Match.Path,
			Share:             float64(p.Share),
			FalsePositiveRate: float64(p.FalsePositiveRate),
		})
	}
	for _, s := range d.Sites {
		c.Sites = append(c.Sites, edge.Site{
			Name:  s.Name,
			Hosts: s.Hosts,
			Origin: edge.Origin{
				URLs:    s.Origin.URLs,
				Host:    s.Origin.Host,
				Timeout: edge.OriginTimeout(s.Origin.Timeout),

				MaxConcurrent: s.Origin.MaxConcurrent,
				Queue:         s.Origin.Queue,
				KnownShare:    float64(s.Origin.KnownShare),
				MaxWait:       s.Origin.MaxWait,
			},
			Shield:            s.Shield,
			SetCookie:         s.SetCookie,
			RequestDirectives: s.RequestDirectives,
			StaleGrace:        s.StaleGrace,
			Bypass:            s.Bypass,
			Catalog:           edge.Catalog(s.Catalog),
		})
	}
	return c
}

// documentOf is the document that [document.config] turns into c. The paths
// of the secret files are the caller's, for c holds only what was in them.
func documentOf(c edge.Config, secrets secretFiles) *document {
	enabled, local, ttl := !c.Filter.Off, !c.Filter.NoLocal, max(c.Negative.TTL, 0)
	slow := max(c.Log.Access.Slow, 0)
	d := &document{
		Name:   c.Name,
		Listen: listenSection(c.Listen),
		Admin:  adminSection{Address: c.Admin.Address, TokenFile: secrets.token},
		Cluster: clusterSection{
			Role:      string(c.Cluster.Role),
			Gossip:    c.Cluster.Gossip,
			Peer:      c.Cluster.Peer,
			Advertise: c.Cluster.Advertise,
			Join:      c.Cluster.Join,
			KeyFile:   secrets.keys,
			TLS:       secrets.tls,
		},
		Cache: cacheSection{Memory: size(c.Cache.Memory), MaxObject: size(c.Cache.MaxObject)},
		Negative: negativeSection{
			Capacity:      size(c.Negative.Capacity),
			TTL:           &ttl,
			MaxCreateRate: c.Negative.MaxCreateRate,
			Statuses:      c.Negative.Statuses,
		},
		Filter: filterSection{
			Enabled:           &enabled,
			Ask:               c.Filter.Ask,
			Local:             &local,
			Keys:              c.Filter.Keys,
			FalsePositiveRate: rate(c.Filter.FalsePositiveRate),
			Peers:             c.Filter.Peers,
		},
		Purge: purgeSection(c.Purge),
		Drain: c.Drain,
		Log: logSection{
			Format: c.Log.Format,
			Level:  c.Log.Level,
			Access: accessSection{Sample: rate(c.Log.Access.Sample), Slow: &slow, Query: c.Log.Access.Query},
		},
		Tracing: tracingSection{Endpoint: c.Tracing.Endpoint, Sample: rate(c.Tracing.Sample)},
	}
	for _, p := range c.Cache.Partitions {
		d.Cache.Partitions = append(d.Cache.Partitions, partitionSection{
			Name:              p.Name,
			Match:             matchSection{Path: p.Paths},
			Share:             rate(p.Share),
			FalsePositiveRate: rate(p.FalsePositiveRate),
		})
	}
	for _, s := range c.Sites {
		d.Sites = append(d.Sites, siteSection{
			Name:  s.Name,
			Hosts: s.Hosts,
			Origin: originSection{
				URLs:    s.Origin.URLs,
				Host:    s.Origin.Host,
				Timeout: timeoutSection(s.Origin.Timeout),

				MaxConcurrent: s.Origin.MaxConcurrent,
				Queue:         s.Origin.Queue,
				KnownShare:    rate(s.Origin.KnownShare),
				MaxWait:       s.Origin.MaxWait,
			},
			Shield:            s.Shield,
			SetCookie:         s.SetCookie,
			RequestDirectives: s.RequestDirectives,
			StaleGrace:        s.StaleGrace,
			Bypass:            s.Bypass,
			Catalog:           catalogSection(s.Catalog),
		})
	}
	return d
}

// bareOrigins names the origins that are a host and port where a URL is
// wanted: the likeliest slip, and one that edge can only call "not a URL".
func (d *document) bareOrigins() []edge.Problem {
	var ps []edge.Problem
	for i, s := range d.Sites {
		for j, raw := range s.Origin.URLs {
			whole := "http://" + raw
			if u, err := url.Parse(whole); strings.Contains(raw, "://") || err != nil || u.Host == "" {
				continue
			}
			ps = append(ps, edge.Problem{
				Path: fmt.Sprintf("sites[%d].origin.urls[%d]", i, j),
				Text: fmt.Sprintf("%q has no scheme: write %s", raw, whole),
			})
		}
	}
	return ps
}

// inherits reports whether the path is a partition's rate that the document
// leaves to filter.false_positive_rate: what is wrong with it is wrong there.
func (d *document) inherits(path string) bool {
	ps := d.Cache.Partitions
	if len(ps) == 0 {
		ps = make([]partitionSection, 1) // the default one
	}
	for i, p := range ps {
		if p.FalsePositiveRate == 0 && path == fmt.Sprintf("cache.partitions[%d].false_positive_rate", i) {
			return true
		}
	}
	return false
}

// setText gives a value written as text to one field; the errors say what was
// expected. It is where every unit of the file is read.
func setText(field any, s string) error {
	var err error
	switch v := field.(type) {
	case *string:
		*v = s
	case *bool:
		switch s {
		case "true", "false":
			*v = s == "true"
		default:
			err = fmt.Errorf("%q is not a switch: want true or false", s)
		}
	case *int:
		*v, err = parseCount(s)
	case *size:
		var n int64
		n, err = parseSize(s)
		*v = size(n)
	case *rate:
		var r float64
		r, err = parseRate(s)
		*v = rate(r)
	case *time.Duration:
		*v, err = parseDuration(s)
	default:
		panic(fmt.Sprintf("a document has no fields of type %T", field))
	}
	return err
}

// text is the form that setText reads back.
func text(field any) string {
	switch v := field.(type) {
	case string:
		return v
	case bool, int:
		return fmt.Sprint(v)
	case size:
		return formatSize(int64(v))
	case rate:
		return formatRate(float64(v))
	case time.Duration:
		return formatDuration(v)
	default:
		panic(fmt.Sprintf("a document has no fields of type %T", field))
	}
}
