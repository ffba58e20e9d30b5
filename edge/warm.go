package edge

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"edged/edge/admin"
	"edged/edge/rfc9111"
)

const (
	maxWarm         = 10000 // URLs of one call
	warmConcurrency = 8
	warmRate        = 100 // fetches a second, when the call does not say
	warmProgress    = time.Second
)

// warm fetches what neither this node nor, by the filters, a peer holds. What
// is held is no fetch, and does not count against the rate. Beside the rate at
// most warmConcurrency fetches are under way, and the origin's own limit holds.
func (n *Node) warm(ctx context.Context, req admin.WarmRequest, progress func(admin.WarmResult)) (admin.WarmResult, error) {
	if len(req.URLs) > maxWarm {
		return admin.WarmResult{}, &admin.Error{Status: http.StatusRequestEntityTooLarge, Text: "more than " + itoa(maxWarm) + " URLs in one call: split it"}
	}
	todo := make([]*request, len(req.URLs))
	for i, u := range req.URLs {
		var err error
		if todo[i], err = n.explained(http.MethodGet, u, http.Header{}); err != nil {
			return admin.WarmResult{}, err
		}
	}
	pace := time.Second / time.Duration(min(cmp.Or(req.Rate, warmRate), int(time.Second)))

	var mu sync.Mutex
	var res admin.WarmResult
	count := func(of *int) {
		mu.Lock()
		*of++
		mu.Unlock()
	}
	sofar := func() admin.WarmResult {
		mu.Lock()
		defer mu.Unlock()
		return res
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		defer wg.Wait()
		slots := make(chan struct{}, warmConcurrency)
		next := time.Now()
		for _, rq := range todo {
			if n.held(rq) { // looked at in its turn: it may have come since
				count(&res.Skipped)
				continue
			}
			if !waitUntil(ctx, next) {
				count(&res.Failed)
				continue
			}
			next = time.Now().Add(pace)
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				count(&res.Failed)
				continue
			}
			wg.Go(func() {
				defer func() { <-slots }()
				if n.fetchBehind(ctx, rq) {
					count(&res.Fetched)
				} else {
					count(&res.Failed)
				}
			})
		}
	}()
	tick := time.NewTicker(warmProgress)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return sofar(), nil
		case <-tick.C:
			progress(sofar())
		}
	}
}

// waitUntil waits for a moment, and returns false when ctx ends first.
func waitUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// held reports whether a fresh response, or a peer that may have one, exists.
func (n *Node) held(rq *request) bool {
	if r := n.selectVariant(rq, n.stored(rq)); r != nil {
		reuse, _ := metaOf(r).Decide(rfc9111.RequestDirectives{}, time.Now())
		return reuse == rfc9111.Fresh && !metaOf(r).partial()
	}
	return n.gossip.Lookup(rq.part, rq.key.Filter).Len() > 0
}

// fetchBehind fetches a request for the store, with no client behind it, and
// reports whether it came to a stored response.
func (n *Node) fetchBehind(ctx context.Context, rq *request) bool {
	f := n.flights.joinBehind(rq.key.URL)
	if f == nil {
		return true // someone else fetches it right now
	}
	defer n.flights.leave(f)
	fw := n.newForward(rq, "uri-miss", nil, nil)
	fw.lookup = false
	n.launch(f, fw)
	return n.drainFlight(ctx, f) && f.out.meta != nil && f.out.status < 400
}

// drainFlight waits for the end of a flight, in the place of a client, and
// reports whether it came to a complete response.
func (n *Node) drainFlight(ctx context.Context, f *flight) bool {
	select {
	case <-f.ready:
	case <-ctx.Done():
		return false
	}
	if f.out.body == nil {
		return f.out.err == nil
	}
	r, ok := f.out.body.reader()
	if !ok {
		return false
	}
	defer r.leave()
	for {
		if _, _, err := r.next(ctx); err != nil {
			return f.out.body.complete()
		}
	}
}
