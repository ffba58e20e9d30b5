package admin

import (
	"context"
	"net/http"
	"time"
)

// Node is what the admin API shows and steers: functions that the node hands
// over. Each may be called from many goroutines at once and must return soon
// after its context ends. A function that is nil answers 501; Metrics nil
// answers 404.
//
// An [*Error] that a function returns is shown to the client as it is; any
// other error becomes a 500 whose text stays in the log.
type Node struct {
	// Live returns an error when the process should be restarted.
	Live func() error
	// Ready returns an error, with the reason, while the node should get no
	// traffic: before it serves, and from the moment that it drains.
	Ready func() error

	// Metrics serves the Prometheus exposition.
	Metrics http.Handler

	// Cluster describes the node and what it knows of the others.
	Cluster func() Cluster
	// Feed is what open status pages watch; nil: they can't.
	Feed *Feed

	// Explain tells what a request would meet, without sending anything. The
	// URL is absolute, http or https, with a host.
	Explain func(ctx context.Context, method, url string, header http.Header) (Explanation, error)

	// Keys asks all members that are alive which cluster keys they have. The
	// list is empty for a cluster without keys.
	Keys func(ctx context.Context) []MemberKeys

	// Tags lists the n largest tags of what is stored here.
	Tags func(n int) Tags

	// Purge invalidates stored responses and negative entries on every member.
	// watch, unless nil, is told how it goes on until it returns.
	Purge func(ctx context.Context, req PurgeRequest, watch *PurgeWatch) (PurgeResult, error)

	// PurgeProgress tells how far a recent purge of this node has come: at once,
	// or, with a watch, when no member is waited for.
	PurgeProgress func(ctx context.Context, id string, watch *PurgeWatch) (PurgeResult, error)

	// Created forgets the negative entries of URLs that exist from now on, on
	// every member.
	Created func(ctx context.Context, urls []string) (PurgeResult, error)
	// CatalogUpdate changes what the site's catalog says exists, on every
	// member.
	CatalogUpdate func(ctx context.Context, site string, add, remove []string) (CatalogResult, error)
	// Warm fetches those of the URLs that neither this node nor, by the
	// filters, a peer holds, at most Rate a second. Until it returns it may call
	// progress with what has come of them so far, from one goroutine at a time.
	Warm func(ctx context.Context, req WarmRequest, progress func(WarmResult)) (WarmResult, error)
	// Reload reads the configuration anew and takes it over, all of it or
	// nothing.
	Reload func(ctx context.Context) error
	// Drain begins a graceful stop and returns without waiting for its end.
	Drain func(ctx context.Context) error
}

// Error is an answer other than success that a [Node] function asks for.
type Error struct {
	Status int    // an HTTP status, 400 to 599; another one becomes 500
	Text   string // one line for the client
}

func (e *Error) Error() string { return e.Text }

// Cluster is the state of the cluster as one node sees it; the counters are
// that node's own, since its start.
type Cluster struct {
	Name          string  `json:"name"`
	Role          string  `json:"role"` // edge or shield
	Version       string  `json:"version"`
	UptimeSeconds float64 `json:"uptime_seconds"`
	Draining      bool    `json:"draining"`

	Members    []Member    `json:"members"` // this node included
	Partitions []Partition `json:"partitions"`
	Negative   Negative    `json:"negative"`
	Catalogs   []Catalog   `json:"catalogs"`
	Origins    []Origin    `json:"origins"` // site by site, in the order of the configuration

	Requests    map[string]uint64 `json:"requests"`     // by result, as edged_requests_total
	PeerRPCs    map[string]uint64 `json:"peer_rpcs"`    // by result, as edged_peer_rpcs_total
	RPCsSkipped uint64            `json:"rpcs_skipped"` // look-ups that the filters answered for all peers
	HitRatio    float64           `json:"hit_ratio"`    // 0 to 1; 0 before the first request

	// SavedSeconds is what the skipped look-ups would have waited for one peer
	// each, at the mean round trip of the moment.
	SavedSeconds float64 `json:"saved_seconds"`

	PurgesInFlight int64  `json:"purges_in_flight"` // sent by this node and not acknowledged by all
	PurgeLog       string `json:"purge_log"`        // synced, syncing or isolated, as edged_purge_log_state

	Now Sample `json:"now"` // the last second
}

// A Sample is one second of a node. Shares are of that second's requests, 0 to
// 1, and 0 when there were none.
type Sample struct {
	At  int64   `json:"at"` // Unix time in seconds
	RPS float64 `json:"rps"`

	Own    float64 `json:"own"`    // answered from the own store, stale ones included
	Absent float64 `json:"absent"` // answered from a remembered absence or a catalog
	Peer   float64 `json:"peer"`
	Shield float64 `json:"shield"`
	Origin float64 `json:"origin"` // misses and validations
	Other  float64 `json:"other"`  // past the cache, and errors

	// The percentiles are of the last ten seconds, interpolated in the buckets
	// of edged_request_duration_seconds; 0 without requests.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`

	Skipped float64 `json:"skipped"` // look-ups a second that asked no peer, by the filters
	Sent    float64 `json:"sent"`    // peer requests a second
}

// History is the last samples, oldest first.
type History struct {
	SpanSeconds int      `json:"span_seconds"` // what it covers once it is full
	Samples     []Sample `json:"samples"`
}

// A Summary is what a member says of itself to a node whose status page is
// open.
type Summary struct {
	Name        string  `json:"name"`
	Now         Sample  `json:"now"`
	HitRatio    float64 `json:"hit_ratio"` // since its start, as [Cluster]
	RPCsSkipped uint64  `json:"rpcs_skipped"`
	Stored      int64   `json:"stored_bytes"`
	Limit       int64   `json:"limit_bytes"`
	Holds       []Held  `json:"holds"` // its replicas of the others' filters
}

// Held is one replica: whose filter, and how well it is known.
type Held struct {
	Member     string  `json:"member"`
	State      string  `json:"state"` // as edged_replica_state
	AgeSeconds float64 `json:"age_seconds"`
}

// MemberKeys is which cluster keys a member has. A key is shown as the first 8
// hex digits of its SHA-256.
type MemberKeys struct {
	Member  string   `json:"member"`
	Encrypt string   `json:"encrypt"`         // the key that it encrypts with
	Decrypt []string `json:"decrypt"`         // all that it has, that one included
	Error   string   `json:"error,omitempty"` // why it did not say
}

// Member is one member of the cluster.
type Member struct {
	Name        string  `json:"name"`
	Role        string  `json:"role"`
	State       string  `json:"state"` // alive, suspect, failed, left
	Peer        string  `json:"peer"`  // host:port that peers ask
	Self        bool    `json:"self"`
	ShareOfRing float64 `json:"share_of_ring"` // 0 to 1
	Replica     Replica `json:"replica"`       // of its filter, as this node holds it; zero for the node itself

	// Summary is what the member said of itself, when it was asked while a
	// status page was open; nil when it was not, or did not answer.
	Summary *Summary `json:"summary,omitempty"`
}

// Replica is what a node holds of a peer's filters.
type Replica struct {
	State      string  `json:"state"` // as edged_replica_state
	AgeSeconds float64 `json:"age_seconds"`
	Keys       uint64  `json:"keys"`
	Fill       float64 `json:"fill"` // share of bits set, 0 to 1

	// SetHashes are of the bits that are held, by partition, in hex. While
	// nothing changes they are those of the peer's own filters.
	SetHashes map[string]string `json:"set_hashes,omitempty"`
}

// Partition is one share of the cache.
type Partition struct {
	Name   string `json:"name"`
	Filter Filter `json:"filter"`
	Bloom  Bloom  `json:"bloom"`
	Store  Store  `json:"store"`
}

// Filter is a node's own counting filter. The rates are over all peers.
type Filter struct {
	Keys           uint64  `json:"keys"`
	CapacityKeys   uint64  `json:"capacity_keys"`
	FillRatio      float64 `json:"fill_ratio"` // share of bits set, 0 to 1
	PlanFillRatio  float64 `json:"plan_fill_ratio"`
	PinnedCounters uint64  `json:"pinned_counters"`
	ExpectedRate   float64 `json:"expected_rate"`
	ObservedRate   float64 `json:"observed_rate"`
	Epoch          uint64  `json:"epoch"`
	Rebuilds       uint64  `json:"rebuilds"`
	SetHash        string  `json:"set_hash"` // of the bits last published, in hex
}

// Bloom counts look-ups by what the peers' filters were worth.
type Bloom struct {
	Negative     uint64 `json:"negative"`
	PositiveHit  uint64 `json:"positive_hit"`
	PositiveMiss uint64 `json:"positive_miss"`
	Unknown      uint64 `json:"unknown"`
}

// Store is a partition's stored responses.
type Store struct {
	Bytes      int64  `json:"bytes"`
	LimitBytes int64  `json:"limit_bytes"`
	Objects    int64  `json:"objects"`
	Evictions  uint64 `json:"evictions"`
}

// Negative is the partition of remembered absences.
type Negative struct {
	Entries    int64             `json:"entries"`
	Bytes      int64             `json:"bytes"`
	LimitBytes int64             `json:"limit_bytes"`
	Hits       uint64            `json:"hits"`
	Refused    map[string]uint64 `json:"refused"` // by reason
}

// Catalog is a site's list of what exists.
type Catalog struct {
	Site        string  `json:"site"`
	Mode        string  `json:"mode"`      // as configured
	Effective   string  `json:"effective"` // what it does now
	Reason      string  `json:"reason"`    // why the two differ
	Paths       int64   `json:"paths"`
	AgeSeconds  float64 `json:"age_seconds"`
	WouldRefuse uint64  `json:"would_refuse"`
	Wrong       uint64  `json:"wrong"`
}

// Origin is one server of a site's origin, as this node meets it; the counters
// are since the node took its present configuration of the site.
type Origin struct {
	Site     string `json:"site"`
	URL      string `json:"url"`     // as configured
	Healthy  bool   `json:"healthy"` // false while it is skipped, for its failures
	InFlight int    `json:"in_flight"`
	Attempts uint64 `json:"attempts"` // requests that were sent to it, or should have been
	Failures uint64 `json:"failures"` // those of them that failed, in any phase
}

// Explanation is what a request would meet, in the order of its way.
type Explanation struct {
	URL       string `json:"url"`
	Method    string `json:"method"`
	Key       string `json:"key"`
	Hash      string `json:"hash"` // hexadecimal
	Partition string `json:"partition"`
	Site      string `json:"site"`
	Owner     string `json:"owner"` // of the key on the ring

	Steps   []Step      `json:"steps"`
	Stored  []Stored    `json:"stored"`
	Filters []FilterSay `json:"filters"`
	Would   string      `json:"would"` // where the request would go, one sentence
}

// Step is one decision on a request's way.
type Step struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Rule   string `json:"rule"` // configuration or section that decided
}

// Stored is one stored response under the key, or a negative entry.
type Stored struct {
	Status     int       `json:"status"`
	Negative   bool      `json:"negative"`
	From       string    `json:"from,omitempty"`      // of a negative entry: origin or shield
	ExpiresAt  time.Time `json:"expires_at,omitzero"` // of a negative entry
	Variant    string    `json:"variant"`             // nominated fields and their values
	StoredAt   time.Time `json:"stored_at"`
	AgeSeconds float64   `json:"age_seconds"`
	TTLSeconds float64   `json:"ttl_seconds"` // below 0: stale for so long
	Bytes      int64     `json:"bytes"`
	Tags       []string  `json:"tags"`
	Matches    bool      `json:"matches"` // this request's fields select it
}

// FilterSay is what one member's replica says of the key.
type FilterSay struct {
	Member string `json:"member"`
	Says   string `json:"says"` // yes, no, unknown
}

// PurgeRequest selects what to invalidate: everything that any of its parts
// names.
type PurgeRequest struct {
	URLs     []string `json:"urls"`
	Tags     []string `json:"tags"`
	Prefixes []string `json:"prefixes"` // of the whole URL
	Hosts    []string `json:"hosts"`
	All      bool     `json:"all"`
	Soft     bool     `json:"soft"`   // make stale rather than remove
	Reason   string   `json:"reason"` // "deleted": the URLs are gone at the origin, and absent until negative.ttl is over; empty: none
	Wait     string   `json:"wait"`   // "all" (the default): until every member has acknowledged; "none"

	By string `json:"-"` // who asks, for the log
}

// PurgeResult tells how far an invalidation has come.
type PurgeResult struct {
	ID      string      `json:"id"`
	Members int         `json:"members"`
	Acked   int         `json:"acked"`
	Missing []string    `json:"missing"` // members that have not acknowledged
	Nodes   []PurgeNode `json:"nodes"`   // each other member

	// Stored is how many stored responses of this node the purge named when it
	// was called, each counted for each URL and tag that names it. It is
	// missing when a prefix or a host is purged, and when only the progress is
	// asked for. StoredMore says that there may be others, whose tags found no
	// room in the index.
	Stored     *int `json:"stored,omitempty"`
	StoredMore bool `json:"stored_more,omitempty"`

	// Warning is what the purge has not that it should have: to be kept on disk,
	// or other members that it could reach.
	Warning string `json:"warning,omitempty"`
}

// Tags are the tags of what is stored on this node.
type Tags struct {
	Tags       []TagCount `json:"tags"`       // the largest, by descending count
	Distinct   int        `json:"distinct"`   // different ones
	References int        `json:"references"` // each counted for each response that carries it
	Bytes      int64      `json:"bytes"`      // that the index of tags takes
	Untagged   int        `json:"untagged"`   // stored responses whose tags found no room in it, and are not counted
}

// TagCount is a tag, and how many stored responses carry it.
type TagCount struct {
	Tag    string `json:"tag"`
	Stored int    `json:"stored"`
}

// PurgeWatch is told how an invalidation goes on, from one goroutine.
type PurgeWatch struct {
	Begun   func(PurgeResult) // once, when the node itself has applied it
	Changed func(PurgeNode)   // for each member that has applied it, or is found to be unreachable
}

// PurgeNode tells how far an invalidation has come on one member.
type PurgeNode struct {
	Name  string  `json:"name"`
	State string  `json:"state"`           // "applied", "waiting", or "unreachable": it applies it when it is back
	After float64 `json:"after,omitempty"` // seconds from the call to its acknowledgement
}

// CatalogResult counts what an update changed, and how far it has come.
type CatalogResult struct {
	Added   int      `json:"added"`
	Removed int      `json:"removed"`
	ID      string   `json:"id"`
	Members int      `json:"members"`
	Acked   int      `json:"acked"`
	Missing []string `json:"missing"` // members that have not acknowledged
}

// WarmRequest says what to fetch, and how fast.
type WarmRequest struct {
	URLs     []string `json:"urls"`
	Rate     int      `json:"rate"`     // fetches a second; 0: the node's choice
	Progress bool     `json:"progress"` // answer with a line of JSON every second, the last one with the result
}

// WarmResult counts what became of the URLs.
type WarmResult struct {
	Fetched int `json:"fetched"`
	Skipped int `json:"skipped"` // held by this node or, by the filters, by a peer
	Failed  int `json:"failed"`
}
