// Package peerfilter knows, without asking, which members of the cluster may
// hold a cache key.
//
// A node counts the keys that it stores in a [Counting] filter. Of that filter
// one bit a position is published: [Shadow] finds what changed since the last
// time, records and snapshots carry it to the peers (the gossip package sends
// them), and there it stands in [Replicas]. One look-up in the replicas tells
// for all peers at once which of them may hold a key. When none may, none is asked.
//
// # Nouns
//
//   - [Hash]: 128 bits of a cache key under the cluster's secret [Seed], made by
//     [Sum] once a request. Everything here takes hashes, never keys.
//   - [Params]: how a filter is laid out. A block is one cache line of eight
//     sectors; a key sets one bit in each sector of one block.
//   - [Sizing]: how large a filter must be for a rate over all peers.
//   - [Counting]: our own filter, with 4-bit counters so that keys can be removed.
//   - [Shadow]: the published state, what peers were last told of a Counting.
//   - [Transitions], [Record], [Snapshot]: steps between published states and
//     whole ones, with their wire forms.
//   - [Replicas], [Set]: the published states of all peers, bit-sliced, and the
//     answer of a look-up.
//   - [Rotating]: two plain filters in turn, for what should age out by itself.
//   - [Watch], [Advice]: whether a filter is as planned or must be rebuilt.
//
// # Caveats
//
// A filter is advice. Its no is certain only for the state that it shows, and
// a replica is always a little late; its yes is wrong at the rate that it is sized
// for. Neither may decide what a client gets.
//
// The rate that counts is over all peers: with P peers at p each, a key that nobody has
// draws a request with probability 1 - (1-p)^P. [Size] takes the target over all.
//
// A Counting must be told of each key once when it comes and once when it goes.
// It detects most, but not all, removes of keys that never came.
//
// A filter is rebuilt, larger or with the pins gone, by adding all stored
// hashes to a new Counting beside the old one ([Counting.AddAll]) while the
// store tells both of what comes and goes, and then using the new one with a new Shadow: to the peers
// that is a new epoch, which begins with a snapshot.
//
// Lock order: a caller's locks, then one of ours; of ours, never two at once.
package peerfilter
