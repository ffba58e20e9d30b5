package edge

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"edged/edge/rfc9111"
	"edged/gossip"
	"edged/peerfilter"
)

// Problem is one thing wrong with a Config: Path is the place in the
// configuration file ("cache.partitions[0].share"), Text what is wrong and
// what was expected instead.
type Problem struct {
	Path string
	Text string
}

func (p Problem) Error() string { return p.Path + ": " + p.Text }

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Problems returns everything that is wrong with the configuration, after
// defaults; none when the node can be built.
func (c Config) Problems() []Problem {
	c = c.WithDefaults()
	var ps problems
	c.addressProblems(&ps)
	c.clusterProblems(&ps)
	c.cacheProblems(&ps)
	c.filterProblems(&ps)
	c.siteProblems(&ps)
	c.logProblems(&ps)
	return ps
}

func (c *Config) addressProblems(ps *problems) {
	if !nameRE.MatchString(c.Name) {
		ps.add("name", "%q is not a node name: 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", c.Name)
	}
	address := func(path, addr string) {
		if _, err := net.ResolveTCPAddr("tcp", addr); err != nil {
			ps.add(path, "%q is not an address to listen on: want host:port, such as 127.0.0.1:8080 or :8080", addr)
		}
	}
	address("listen.address", c.Listen.Address)
	if c.Listen.MaxConnections < 1 {
		ps.add("listen.max_connections", "is negative")
	}
	address("admin.address", c.Admin.Address)
	address("cluster.gossip", c.Cluster.Gossip)
	address("cluster.peer", c.Cluster.Peer)
	used := map[string]string{}
	for _, l := range []struct{ path, addr string }{
		{"listen.address", c.Listen.Address}, {"admin.address", c.Admin.Address}, {"cluster.peer", c.Cluster.Peer}, {"cluster.gossip", c.Cluster.Gossip},
	} {
		if _, port, err := net.SplitHostPort(l.addr); err != nil || port == "0" {
			continue
		}
		if other := used[l.addr]; other != "" {
			ps.add(l.path, "%s is the address of %s too: want another port", l.addr, other)
		}
		used[l.addr] = l.path
	}
}

func (c *Config) clusterProblems(ps *problems) {
	if c.Cluster.Role != RoleEdge && c.Cluster.Role != RoleShield {
		ps.add("cluster.role", "%q is not a role: want edge or shield", c.Cluster.Role)
	}
	if len(c.Cluster.Keys) == 0 {
		for _, a := range []struct{ path, addr string }{{"cluster.gossip", c.Cluster.Gossip}, {"cluster.peer", c.Cluster.Peer}} {
			if !isLoopback(a.addr) {
				ps.add(a.path, "%q can be reached from other machines, so cluster.key_file is required: make a key with `edged keygen`, or bind to 127.0.0.1", a.addr)
			}
		}
	}
	for i, k := range c.Cluster.Keys {
		if len(k) != 32 {
			ps.add("cluster.key_file", "key %d has %d bytes: want 32, as `edged keygen` prints them", i+1, len(k))
		}
	}
	if t := c.Cluster.TLS; t != nil {
		if _, err := gossip.NewIdentity(c.Name, t.Cert, t.Key, t.CA, nil); err != nil {
			key, text, _ := strings.Cut(err.Error(), ": ")
			ps.add("cluster.tls."+key, "%s", text)
		}
	}
	for i, j := range c.Cluster.Join {
		if _, port, err := net.SplitHostPort(j); err != nil || port == "" {
			ps.add(fmt.Sprintf("cluster.join[%d]", i), "%q is not a member's address: want host:port", j)
		}
	}
	if a := c.Cluster.Advertise; a != "" {
		switch ip, err := netip.ParseAddr(a); {
		case err != nil:
			ps.add("cluster.advertise", "%q is not an IP address", a)
		case ip.IsUnspecified():
			ps.add("cluster.advertise", "%q is no address that others can reach: want one of this machine's", a)
		case !ip.IsLoopback() && len(c.Cluster.Keys) == 0:
			ps.add("cluster.advertise", "%q can be reached from other machines, so cluster.key_file is required: make a key with `edged keygen`", a)
		}
	}
}

func (c *Config) cacheProblems(ps *problems) {
	if c.Cache.Memory < 1<<20 {
		ps.add("cache.memory", "%d bytes are too few: want at least 1MiB", c.Cache.Memory)
	}
	if c.Cache.MaxObject < 0 {
		ps.add("cache.max_object", "is negative")
	}
	share := 0.0
	names := map[string]bool{}
	for i, p := range c.Cache.Partitions {
		at := fmt.Sprintf("cache.partitions[%d]", i)
		if !nameRE.MatchString(p.Name) {
			ps.add(at+".name", "%q is not a partition name", p.Name)
		} else if names[p.Name] {
			ps.add(at+".name", "%q is used twice", p.Name)
		}
		names[p.Name] = true
		if !(p.Share > 0 && p.Share <= 1) {
			ps.add(at+".share", "%s is not a share: want above 0%% and up to 100%%", percent(p.Share))
		}
		share += p.Share
		ps.rate(at+".false_positive_rate", p.FalsePositiveRate)
		for j, pat := range p.Paths {
			if !strings.HasPrefix(pat, "/") && !strings.HasPrefix(pat, "*") {
				ps.add(fmt.Sprintf("%s.match.path[%d]", at, j), "%q matches nothing: a path pattern begins with / or *", pat)
			}
		}
		if len(p.Paths) == 0 && i < len(c.Cache.Partitions)-1 {
			ps.add(at, "%q matches every request, so the partitions after it are never used: give it a match, or move it to the end", p.Name)
		}
	}
	if last := len(c.Cache.Partitions) - 1; len(c.Cache.Partitions[last].Paths) > 0 {
		ps.add(fmt.Sprintf("cache.partitions[%d]", last), "the last partition must match every request: take its match away, or add one without a match")
	}
	if share > 1.0001 {
		ps.add("cache.partitions", "the shares add up to %s: want 100%% at most", percent(share))
	}
	if len(c.Cache.Partitions) > 16 {
		ps.add("cache.partitions", "%d partitions: want 16 at most", len(c.Cache.Partitions))
	}
}

// filterProblems looks at what is remembered beside the store, too.
func (c *Config) filterProblems(ps *problems) {
	if c.Negative.Capacity < 0 {
		ps.add("negative.capacity", "is negative")
	}
	if c.Negative.MaxCreateRate < 0 {
		ps.add("negative.max_create_rate", "is negative")
	}
	for i, s := range c.Negative.Statuses {
		if !rfc9111.CanMeanAbsence(s) {
			ps.add(fmt.Sprintf("negative.statuses[%d]", i), "%d: want a status that says of the URL alone that there is nothing, such as 403", s)
		}
	}
	if c.Filter.Keys < 1 || c.Filter.Keys > 400_000_000 {
		ps.add("filter.keys", "%d: want 1 to 400000000", c.Filter.Keys)
	}
	ps.rate("filter.false_positive_rate", c.Filter.FalsePositiveRate)
	if c.Purge.Isolated != "revalidate" && c.Purge.Isolated != isolatedServe {
		ps.add("purge.isolated", "%q: want revalidate or serve", c.Purge.Isolated)
	}
	switch {
	case c.Filter.Ask != "all" && c.Filter.Ask != askNone:
		ps.add("filter.ask", "%q: want all or none", c.Filter.Ask)
	case c.Filter.Ask == askNone && !c.Filter.Off:
		ps.add("filter.ask", "none is for comparison without filters: want enabled: false beside it, or no ask")
	}
	if c.Filter.Peers < 1 || c.Filter.Peers > peerfilter.MaxMembers {
		ps.add("filter.peers", "%d: want 1 to %d", c.Filter.Peers, peerfilter.MaxMembers)
	}
	for i, p := range c.Cache.Partitions {
		sound := len(*ps) == 0 // what is wrong in itself has been said
		if _, err := c.sizing(p); err != nil && sound {
			ps.add(fmt.Sprintf("cache.partitions[%d]", i), "%v", err)
		}
	}
	if dir := c.Purge.StateDir; dir != "" {
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			ps.add("purge.state_dir", "%s is not a directory", dir)
		}
	}
}

func (c *Config) siteProblems(ps *problems) {
	if len(c.Sites) == 0 {
		ps.add("sites", "there is no site, so nothing to serve: give one with an origin, or start with --origin URL")
	}
	hosts := map[string]string{}
	siteNames := map[string]bool{}
	for i, s := range c.Sites {
		at := fmt.Sprintf("sites[%d]", i)
		if !nameRE.MatchString(s.Name) {
			ps.add(at+".name", "%q is not a site name", s.Name)
		} else if siteNames[s.Name] {
			ps.add(at+".name", "%q is used twice", s.Name)
		}
		siteNames[s.Name] = true
		hs := s.Hosts
		if len(hs) == 0 {
			hs = []string{"*"}
		}
		for j, h := range hs {
			hp := fmt.Sprintf("%s.hosts[%d]", at, j)
			if len(s.Hosts) == 0 {
				hp = at
			}
			h = strings.ToLower(h)
			if h != "*" && (strings.Contains(strings.TrimPrefix(h, "*."), "*") || strings.ContainsAny(h, "/ :") || h == "") {
				ps.add(hp, "%q is not a host: want a name without port, or *.name", h)
			}
			if other, dup := hosts[h]; dup {
				ps.add(hp, "host %q belongs to site %q already", h, other)
			}
			hosts[h] = s.Name
		}
		s.Origin.problems(ps, at+".origin")
		s.policyProblems(ps, at)
	}
}

func (o *Origin) problems(ps *problems, at string) {
	if len(o.URLs) == 0 {
		ps.add(at+".urls", "there is no origin: want at least one URL, such as http://127.0.0.1:9000")
	}
	for j, raw := range o.URLs {
		u, err := url.Parse(raw)
		switch op := fmt.Sprintf("%s.urls[%d]", at, j); {
		case err != nil:
			ps.add(op, "%q is not a URL: %v", raw, err)
		case u.Scheme != "http" && u.Scheme != "https":
			ps.add(op, "%q is not an origin: want http://host[:port] or https://host[:port]", raw)
		case !isHost(u.Host, u.Scheme):
			ps.add(op, "%q is not an origin: %q is no host and port", raw, u.Host)
		case (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			ps.add(op, "%q is not an origin: want scheme, host and port only", raw)
		}
	}
	if o.Host != "" && !isHost(o.Host, "http") {
		ps.add(at+".host", "%q is not a host: want a name, or name:port", o.Host)
	}
	for _, t := range []struct {
		key string
		d   time.Duration
	}{{"connect", o.Timeout.Connect}, {"first_byte", o.Timeout.FirstByte}, {"idle", o.Timeout.Idle}} {
		if t.d < 0 {
			ps.add(at+".timeout."+t.key, "%v is negative", t.d)
		}
	}
	if o.MaxConcurrent < 0 {
		ps.add(at+".max_concurrent", "is negative")
	}
	if o.Queue < 0 {
		ps.add(at+".queue", "is negative")
	}
	if !(o.KnownShare > 0 && o.KnownShare <= 1) {
		ps.add(at+".known_share", "%s is not a share: want above 0%% and up to 100%%", percent(o.KnownShare))
	}
	if o.MaxWait < 0 {
		ps.add(at+".max_wait", "%v is negative", o.MaxWait)
	}
}

// policyProblems looks at how the responses of the site at that place are used.
func (s *Site) policyProblems(ps *problems, at string) {
	ps.oneOf(at+".shield", s.Shield, "auto", "off", "ring")
	ps.oneOf(at+".set_cookie", s.SetCookie, "pass", "store")
	ps.oneOf(at+".request_directives", s.RequestDirectives, "ignore", "honour")
	if s.StaleGrace < 0 {
		ps.add(at+".stale_grace", "%v is negative", s.StaleGrace)
	}
	for j, b := range s.Bypass {
		if !strings.HasPrefix(b, "/") && !strings.HasPrefix(b, "*") {
			ps.add(fmt.Sprintf("%s.bypass[%d]", at, j), "%q matches nothing: a path pattern begins with / or *", b)
		}
	}
	ps.oneOf(at+".catalog.mode", s.Catalog.Mode, "off", "observe", "enforce")
	if s.Catalog.Mode != "off" && s.Catalog.File == "" && s.Catalog.URL == "" {
		ps.add(at+".catalog", "mode %s needs a file or a url to read the catalog from", s.Catalog.Mode)
	}
	if raw := s.Catalog.URL; raw != "" {
		if u, err := url.Parse(raw); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			ps.add(at+".catalog.url", "%q is not an http or https URL", raw)
		}
	}
	if s.Catalog.File != "" && s.Catalog.URL != "" {
		ps.add(at+".catalog", "has a file and a url: want one of them")
	}
}

// logProblems looks at what remains: how the node tells of itself, and ends.
func (c *Config) logProblems(ps *problems) {
	ps.oneOf("log.format", c.Log.Format, "text", "json")
	ps.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	if s := c.Log.Access.Sample; !(s >= 0 && s <= 1) {
		ps.add("log.access.sample", "%s is not a share: want 0%% to 100%%", percent(s))
	}
	if e := c.Tracing.Endpoint; e != "" {
		if u, err := url.Parse(e); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			ps.add("tracing.endpoint", "%q is not a collector's URL: want such as http://127.0.0.1:4318", e)
		}
	}
	if s := c.Tracing.Sample; !(s >= 0 && s <= 1) {
		ps.add("tracing.sample", "%s is not a share: want 0%% to 100%%", percent(s))
	}
	if c.Drain < 0 {
		ps.add("drain", "%v is negative", c.Drain)
	}
}

type problems []Problem

func (ps *problems) add(path, format string, args ...any) {
	*ps = append(*ps, Problem{path, fmt.Sprintf(format, args...)})
}

func (ps *problems) rate(path string, r float64) {
	if !(r >= 1e-6 && r <= 0.5) {
		ps.add(path, "%s is not a usable rate: want 0.0001%% to 50%%", percent(r))
	}
}

func (ps *problems) oneOf(path, v string, want ...string) {
	for _, w := range want {
		if v == w {
			return
		}
	}
	ps.add(path, "%q: want %s", v, strings.Join(want[:len(want)-1], ", ")+" or "+want[len(want)-1])
}

// isHost reports whether s is a host[:port] that requests can be sent to.
func isHost(s, scheme string) bool {
	if _, ok := rfc9111.CanonicalHost(s, scheme); !ok {
		return false
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		return true // none
	}
	n, err := strconv.Atoi(port)
	return err == nil && n > 0 && n < 1<<16
}

func percent(f float64) string { return fmt.Sprintf("%.4g%%", f*100) }

// isLoopback reports whether a host:port can only be reached from this machine.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
