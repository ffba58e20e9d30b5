package edge

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"edged/edge/admin"
	"edged/gossip"
)

// A status page shows what each member says of itself. Its node asks them on
// the peer address, each once in summaryEvery and only while the page is open:
//
//	GET /_edged/summary
//	Edged-Summary: TIME SP MAC
//
// TIME is Unix time in seconds, within a minute of the answerer's. MAC is
// HMAC-SHA256 in base64url of "GET /_edged/summary TIME", under a key derived
// from the cluster's (RFC 5869): a stranger learns nothing. A cluster without
// a key is on loopback, and takes no MAC. The answer is an [admin.Summary].
//
// Asking beats gossiping them: a page is open for minutes a month, and the
// records of a filter's changes should not share their way with plots.
const (
	summaryPath  = "/_edged/summary"
	summaryField = "Edged-Summary"

	summaryEvery   = 2 * time.Second
	summaryTimeout = time.Second
	summaryKeep    = 10 * time.Second // what is older is not shown
	summaryAsk     = 8                // members asked at once
	summarySkew    = time.Minute

	// maxSummaryBytes bounds an answer: 1 000 members' replicas at some 100
	// bytes each.
	maxSummaryBytes = 256 << 10
)

// summaries are what the other members said of themselves.
type summaries struct {
	mu    sync.Mutex
	keys  [][]byte  // derived, the first one signs; none: no MAC
	asked time.Time // when a round last began
	of    map[string]heard
}

// heard is a summary and when it came.
type heard struct {
	summary admin.Summary
	at      time.Time
}

func newSummaries(clusterKeys [][]byte) *summaries {
	s := &summaries{of: map[string]heard{}}
	s.setKeys(clusterKeys)
	return s
}

// setKeys takes the cluster's keys, at the start and after a reload.
func (s *summaries) setKeys(clusterKeys [][]byte) {
	var keys [][]byte
	for _, k := range clusterKeys {
		d, err := hkdf.Key(sha256.New, k, nil, "edged-summary-v1", 32)
		if err != nil {
			panic(err) // only for lengths that are constant here
		}
		keys = append(keys, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
}

func (s *summaries) keyring() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

func summaryMAC(key []byte, unix string) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("GET " + summaryPath + " " + unix))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// sign returns the field's value.
func (s *summaries) sign(now time.Time) string {
	unix := strconv.FormatInt(now.Unix(), 10)
	keys := s.keyring()
	if len(keys) == 0 {
		return unix
	}
	return unix + " " + summaryMAC(keys[0], unix)
}

// verify reports whether a member made the field's value, and lately.
func (s *summaries) verify(value string, now time.Time) bool {
	keys := s.keyring()
	if len(keys) == 0 {
		return true
	}
	unix, mac, _ := strings.Cut(value, " ")
	t, err := strconv.ParseInt(unix, 10, 64)
	if err != nil || t < now.Add(-summarySkew).Unix() || t > now.Add(summarySkew).Unix() {
		return false
	}
	for _, k := range keys {
		if subtle.ConstantTimeCompare([]byte(mac), []byte(summaryMAC(k, unix))) == 1 {
			return true
		}
	}
	return false
}

// latest returns what a member said, nil when that was too long ago.
func (s *summaries) latest(member string, now time.Time) *admin.Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.of[member]
	if !ok || now.Sub(h.at) > summaryKeep {
		return nil
	}
	return &h.summary
}

// due reports whether it is time for another round, and begins it.
func (s *summaries) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.asked) < summaryEvery {
		return false
	}
	s.asked = now
	return true
}

// keep notes what members said, and forgets the ones that are gone.
func (s *summaries) keep(member string, sum admin.Summary, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[member] = heard{sum, now}
	for name, h := range s.of {
		if now.Sub(h.at) > summaryKeep {
			delete(s.of, name)
		}
	}
}

// summary is what this node says of itself.
func (n *Node) summary() admin.Summary {
	s := admin.Summary{Name: n.cfg.Name, Now: n.sampler.current(), HitRatio: hitRatio(counts(n.metrics.requests, "result"))}
	for i := range n.metrics.bloom {
		s.RPCsSkipped += counted(n.metrics.bloom[i].negative)
		st := n.store.Stats(i)
		s.Stored, s.Limit = s.Stored+st.Bytes, s.Limit+st.LimitBytes
	}
	s.Holds = n.holds(n.gossip.Stats().Replicas)
	return s
}

// holds is how well this node knows each peer's filters: of several partitions
// the one that is worst off speaks for the member.
func (n *Node) holds(all []gossip.ReplicaStats) []admin.Held {
	held, at := []admin.Held{}, map[string]int{}
	for _, r := range all {
		i, seen := at[r.Member]
		if !seen {
			i = len(held)
			at[r.Member] = i
			held = append(held, admin.Held{Member: r.Member, State: string(r.State)})
		}
		h := &held[i]
		if r.State != gossip.ReplicaLive {
			h.State = string(r.State)
		}
		h.AgeSeconds = max(h.AgeSeconds, rounded(r.Age.Seconds()))
	}
	return held
}

// serveSummary answers another member.
func (n *Node) serveSummary(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.ContentLength != 0 {
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
		return
	}
	if !n.summaries.verify(r.Header.Get(summaryField), time.Now()) {
		http.Error(w, "not signed by a member", http.StatusForbidden)
		return
	}
	b, err := json.Marshal(n.summary())
	if err != nil {
		http.Error(w, "no summary", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(b)
}

// askSummaries asks every peer for its summary, unless that was done just now.
// It does not wait for the answers.
func (n *Node) askSummaries(now time.Time) {
	if !n.summaries.due(now) {
		return
	}
	peers := n.topo.Load().peers
	n.loop(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
		defer cancel()
		slots := make(chan struct{}, summaryAsk)
		var all sync.WaitGroup
		defer all.Wait()
		for _, p := range peers {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			all.Go(func() {
				defer func() { <-slots }()
				if s, ok := n.askSummary(ctx, p); ok {
					n.summaries.keep(p.name, s, time.Now())
				}
			})
		}
	})
}

// askSummary asks one peer; false when it does not answer with a summary, which
// one of an older version does not.
func (n *Node) askSummary(ctx context.Context, p *peer) (s admin.Summary, ok bool) {
	scheme, host := n.memberURL(p)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+summaryPath, nil)
	if err != nil {
		return s, false
	}
	r.Header.Set(summaryField, n.summaries.sign(time.Now()))
	resp, err := n.peerClient.RoundTrip(r)
	if err != nil {
		return s, false
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxSummaryBytes+1))
	if err != nil || resp.StatusCode != http.StatusOK || len(b) > maxSummaryBytes || json.Unmarshal(b, &s) != nil {
		return s, false
	}
	if s.Name != p.name {
		return s, false // another process has its address now
	}
	return s, true
}
