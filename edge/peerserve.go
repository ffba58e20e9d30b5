package edge

import (
	"net/http"
	"strings"
	"time"

	"edged/edge/rfc9111"
	"edged/shield"
)

// servePeer is one request on the peer address: gossip's own endpoints, a
// peer that asks for what is stored, or an edge for which this node is the
// shield.
func (n *Node) servePeer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == summaryPath {
		n.serveSummary(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/_edged/") {
		n.serveMember(w, r)
		return
	}
	rq := &request{w: w, r: r, began: time.Now(), hop: shield.HopPeer}
	hop, err := shield.ParseHop(r.Header)
	if err != nil {
		n.reject(rq, rejectHop, http.StatusBadRequest, err.Error())
		return
	}
	if hop == shield.HopNone {
		// Anyone may ask what is stored, as long as it goes no further.
		if !rfc9111.ParseRequestDirectives(r.Header, rfc9111.Policy{}).OnlyIfCached {
			n.reject(rq, rejectHop, http.StatusForbidden, "the peer address answers other members, and only-if-cached; clients use the client address")
			return
		}
		hop = shield.HopPeer
	}
	rq.hop = hop
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		n.reject(rq, rejectMethod, http.StatusMethodNotAllowed, "a member is asked with GET or HEAD")
		return
	}
	rq.behind = !n.gossip.Carried(r.Header.Get(changesField))
	n.stripInternal(r.Header)
	n.trace(rq)
	if !n.admit(rq) || !n.identify(rq) {
		return
	}
	if hop == shield.HopShield {
		if !rq.site.policy.HonourRequest {
			rq.dirs = rfc9111.RequestDirectives{}
		}
		rq.dirs.OnlyIfCached = false // the edge has seen to that
		n.serve(rq)
		return
	}
	n.serveStoredOnly(rq)
}

const (
	// memberBodies bounds how many requests with content members may be
	// sending at once, and memberBodyTimeout for how long: it is read before
	// its signature can be checked.
	memberBodies      = 8
	memberBodyTimeout = 5 * time.Second
)

// serveMember hands a request of another member to gossip.
func (n *Node) serveMember(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		select {
		case n.memberSlots <- struct{}{}:
			defer func() { <-n.memberSlots }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many members send at once", http.StatusServiceUnavailable)
			return
		}
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(memberBodyTimeout))
	}
	showTLS(r)
	n.gossip.Handler().ServeHTTP(w, r)
}

// serveStoredOnly answers a peer from the store, or with 504 (RFC 9111
// §5.2.1.7). What is not fresh is not given away: whoever asks would have to
// validate it anyway.
func (n *Node) serveStoredOnly(rq *request) {
	why, res := "uri-miss", resMiss
	if n.unsure(rq) {
		n.countMiss(rq, missUnusable)
		n.answer(rq, http.StatusGatewayTimeout, rfc9111.CacheStatus{Fwd: "stale"}, "catching up with purges", resStale)
		return
	}
	variants := n.lookup(rq)
	if selected := n.selectVariant(rq, variants); selected != nil {
		m := metaOf(selected)
		if m.partial() {
			why, res = "partial", resMiss
		} else if reuse, _ := m.Decide(rfc9111.RequestDirectives{}, time.Now()); reuse == rfc9111.Fresh && !m.soft {
			n.store.Hit(selected)
			n.serveStored(rq, selected, storedExit{result: resHit, hit: true})
			return
		} else {
			why, res = "stale", resStale
		}
	} else if len(variants) > 0 {
		why = "vary-miss"
	}
	n.countMiss(rq, n.missCause(rq, len(variants) > 0))
	n.answer(rq, http.StatusGatewayTimeout, rfc9111.CacheStatus{Fwd: why}, "not stored here", res)
}

// Why a peer asked in vain; the label of edged_peer_misses_total. With an exact
// set of this node's keys in the place of its filter, and as late, the peer would
// have been spared the first ones alone.
const (
	missFalsePositive = "false_positive" // this node's own filter says maybe, too, and it stores nothing under the key
	missAbsent        = "absent"         // its filter says absent: the peer's replica is late, or it asks without one
	missUnusable      = "unusable"       // something is stored under the key, but not for this request
)

var missCauses = []string{missFalsePositive, missAbsent, missUnusable}

// missCause finds out why there is nothing for a peer, which has looked the key
// up in a replica of the own filter. What a purge has covered is still stored.
func (n *Node) missCause(rq *request, found bool) string {
	switch {
	case found:
		return missUnusable
	case !n.store.Filter(rq.part).MayContain(rq.key.Filter):
		return missAbsent
	case len(n.store.Get(rq.part, &rq.key)) > 0:
		return missUnusable
	}
	return missFalsePositive
}

func (n *Node) countMiss(rq *request, cause string) {
	n.metrics.misses.WithLabelValues(n.cfg.Cache.Partitions[rq.part].Name, cause).Inc()
}
