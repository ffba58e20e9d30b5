package gossip

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Purge is one action of an operator that every member is to apply. All of
// its parts apply.
type Purge struct {
	ID       string   `json:"id"`                 // unique; the same purge applied twice is harmless
	URLs     []string `json:"urls,omitempty"`     //
	Tags     []string `json:"tags,omitempty"`     //
	Prefixes []string `json:"prefixes,omitempty"` //
	Hosts    []string `json:"hosts,omitempty"`    //
	All      bool     `json:"all,omitempty"`      //
	Soft     bool     `json:"soft,omitempty"`     // make stale, rather than remove
	Created  bool     `json:"created,omitempty"`  // the URLs now exist: forget that they were absent
}

// Timers of a purge's fan-out.
const (
	maxPurgeLen   = 4 << 20
	purgeTry      = 2 * time.Second       // of one attempt
	purgeRetry    = 20 * time.Millisecond // after a failed one, doubled up to
	maxPurgeRetry = time.Second           //
	maxPurgeIDs   = 1 << 14               // remembered in each of two halves
)

// errPurgeLen is a purge that no member would accept.
var errPurgeLen = errors.New("the purge is longer than 4 MiB: split it")

// Purge sends p to every other member and returns the names of those that
// have applied it and of those that have not when ctx ends. Members that are
// alive or suspected are tried until ctx ends; one that failed is tried once.
// It does not apply p here: the caller does that, before or after.
//
// A member that joins later does not learn of p.
func (g *Gossip) Purge(ctx context.Context, p Purge) (acked, missing []string) {
	body, err := json.Marshal(p)
	if err == nil && len(body) > maxPurgeLen {
		err = errPurgeLen
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range g.Members() {
		if m.Name == g.cfg.Name || m.State == StateLeft {
			continue
		}
		if err != nil {
			g.log.Error("purge cannot be sent", "id", p.ID, "error", err)
			missing = append(missing, m.Name)
			continue
		}
		wg.Go(func() {
			err := g.purgeMember(ctx, m.Name, body)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked = append(acked, m.Name)
				return
			}
			missing = append(missing, m.Name)
			g.log.Warn("a member has not applied a purge", "member", m.Name, "id", p.ID, "error", err)
		})
	}
	wg.Wait()
	slices.Sort(acked)
	slices.Sort(missing)
	return acked, missing
}

// purgeMember delivers a purge to one member. Its address is looked up anew
// at each try, since it may be restarted meanwhile.
func (g *Gossip) purgeMember(ctx context.Context, name string, body []byte) error {
	wait := purgeRetry
	var last error
	for {
		m, ok := g.member(name)
		if !ok {
			return fmt.Errorf("%s is not a member any more", name)
		}
		try, cancel := context.WithTimeout(ctx, purgeTry)
		_, err := g.call(try, http.MethodPost, m.PeerAddr, pathPurge, body, 0)
		cancel()
		if err == nil {
			g.do(func(now time.Duration) { g.core.counts.sent(kindPurge, len(body)) })
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if m.State == StateFailed || m.State == StateLeft {
			return last
		}
		select {
		case <-ctx.Done():
			return last
		case <-g.done:
			return errClosed
		case <-time.After(wait):
		}
		wait = min(2*wait, maxPurgeRetry)
	}
}

// servePurge applies another member's purge before it answers.
func (g *Gossip) servePurge(body []byte) (int, []byte) {
	d := json.NewDecoder(bytes.NewReader(body))
	var p Purge
	if err := d.Decode(&p); err != nil || p.ID == "" {
		return http.StatusBadRequest, []byte("a purge is JSON with an id\n")
	}
	g.do(func(now time.Duration) { g.core.counts.received(kindPurge, len(body)) })
	if g.cfg.OnPurge != nil && !g.purged.has(p.ID) {
		g.cfg.OnPurge(p)
		g.purged.add(p.ID)
	}
	return http.StatusOK, []byte(`{"applied":true}` + "\n")
}

// recentIDs remembers the last purges, so that a repeated one is answered
// without being applied again. It has two halves; the older one is forgotten
// when the newer one is full.
type recentIDs struct {
	mu         sync.Mutex
	new, older map[string]struct{}
}

func (r *recentIDs) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, a := r.new[id]
	_, b := r.older[id]
	return a || b
}

func (r *recentIDs) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.new == nil || len(r.new) >= maxPurgeIDs {
		r.older, r.new = r.new, map[string]struct{}{}
	}
	r.new[id] = struct{}{}
}
