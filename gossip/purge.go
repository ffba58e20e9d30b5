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

// Spread gives c an id and a stamp, has OnChange apply it here, and sends it to
// every other member. It returns c's id and the names of the members that have
// applied it and of those that have not when ctx ends. Members that are alive
// or suspected are tried until ctx ends; one that failed is tried once.
//
// A change may be applied twice, and two changes of one member in either
// order: what has to know an order goes by the stamps.
func (g *Gossip) Spread(ctx context.Context, c Change) (id string, acked, missing []string) {
	c.Stamp = g.clock.next(time.Now())
	if c.ID == "" {
		c.ID = g.NewID()
	}
	if g.cfg.OnChange != nil {
		g.cfg.OnChange(c)
	}
	body, err := json.Marshal(c)
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
			g.log.Error("purge cannot be sent", "id", c.ID, "error", err)
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
			g.log.Warn("a member has not applied a purge", "member", m.Name, "id", c.ID, "error", err)
		})
	}
	wg.Wait()
	slices.Sort(acked)
	slices.Sort(missing)
	return c.ID, acked, missing
}

// NewID returns an id for a change.
func (g *Gossip) NewID() string {
	return fmt.Sprintf("%016x-%016x", g.cfg.Boot, g.clock.next(time.Now()))
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
	var c Change
	if err := d.Decode(&c); err != nil || c.ID == "" {
		return http.StatusBadRequest, []byte("a change is JSON with an id\n")
	}
	g.do(func(now time.Duration) { g.core.counts.received(kindPurge, len(body)) })
	if g.cfg.OnChange != nil && !g.purged.has(c.ID) {
		g.clock.merge(c.Stamp, time.Now())
		g.cfg.OnChange(c)
		g.purged.add(c.ID)
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
