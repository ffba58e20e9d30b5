// Package edge is one node of an edged cluster: it builds everything that a
// node has, and leads each request through it.
//
// The nouns. A site has hosts, an origin and a policy. A partition is a share
// of the store with a counting filter of its own; which one holds a response
// is a function of the request. A flight is one forward and everybody who
// waits for it; its body is a buffer that all of them stream from. A peer is
// another member as this node sees it: its address, how fast it answers, and
// whether it is worth asking now.
//
// Begin reading at serve.go, which is one request's way; then collapse.go
// (who waits for whom), body.go (how one body reaches many), forward.go (who
// is asked).
//
// What the parts may rely on:
//
//   - Filters are advice. A lookup in the replicas decides only whom to ask;
//     the answer always comes from a stored response whose whole key was
//     compared, or from the origin.
//   - A response is immutable once stored. Freshening stores another one with
//     the same body.
//   - No lock is held while a client, a peer or an origin is waited for.
//
// Lock order: flights.mu, then body.mu; purgeLog.mu, then what the store and
// the negative partition lock inside. Nothing else nests.
package edge
