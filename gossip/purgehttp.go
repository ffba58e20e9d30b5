package gossip

import (
	"context"
	"net/http"
	"time"
)

// pullTimeout bounds one request for changes.
const pullTimeout = 5 * time.Second

// servePull answers another member's request for the changes that it lacks. The
// body is a digest of its whole vector.
func (g *Gossip) servePull(body []byte) (int, []byte) {
	m, err := decodeLogMessage(body, maxBodyLen)
	if err != nil || m.kind != frameDigest {
		return http.StatusBadRequest, []byte("want a digest\n")
	}
	l := g.changes
	var a catchUp
	l.do(func(now time.Duration) { a = l.core.catchUp(now, m) })
	b := encodeCatchUp(a)
	l.mu.Lock()
	l.core.counts.count(l.core.counts.sent, kindCatchUp, len(b))
	l.mu.Unlock()
	return http.StatusOK, b
}

// pullChanges carries out a pullEffect.
func (g *Gossip) pullChanges(ctx context.Context, e pullEffect) (catchUp, error) {
	m, ok := g.member(e.from)
	if !ok {
		return catchUp{}, errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	b, err := g.call(ctx, http.MethodPost, m.PeerAddr, pathPurges, e.payload, 2*catchUpLen)
	if err != nil {
		return catchUp{}, err
	}
	l := g.changes
	l.mu.Lock()
	l.core.counts.count(l.core.counts.received, kindCatchUp, len(b))
	l.mu.Unlock()
	return decodeCatchUp(b)
}
