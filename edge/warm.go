package edge

import (
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
)

// warm fetches what neither this node nor, by the filters, a peer holds.
func (n *Node) warm(ctx context.Context, urls []string) (admin.WarmResult, error) {
	if len(urls) > maxWarm {
		return admin.WarmResult{}, &admin.Error{Status: http.StatusRequestEntityTooLarge, Text: "more than " + itoa(maxWarm) + " URLs in one call: split it"}
	}
	var todo []*request
	var res admin.WarmResult
	for _, u := range urls {
		rq, err := n.explained(http.MethodGet, u, http.Header{})
		if err != nil {
			return admin.WarmResult{}, err
		}
		if n.held(rq) {
			res.Skipped++
			continue
		}
		todo = append(todo, rq)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, warmConcurrency)
	for _, rq := range todo {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			mu.Lock()
			res.Failed++
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			ok := n.fetchBehind(ctx, rq)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				res.Fetched++
			} else {
				res.Failed++
			}
		})
	}
	wg.Wait()
	return res, nil
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
