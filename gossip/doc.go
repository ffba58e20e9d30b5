// Package gossip knows who is in the cluster, holds what each member last
// published of its filter, and tells all of them what an operator purges. It
// is the only user of the membership library.
//
// Nouns. A member has a name, which is its identity; its addresses may
// change. Its boot is one start of its process. A partition is a stream of
// filter records: each epoch (one per rebuild of the filter) begins with an
// empty filter, and record seq takes the published bits from seq-1 to seq. A
// record says which positions became set and clear, absolutely, and carries the
// set-hash of the whole published state after it, so that the two sides
// know with every message whether they are equal. A replica is what we hold of
// one partition of one peer, a head is the newest seq that somebody knows of.
//
// How things travel:
//
//	membership: SWIM, with nodeMeta (who I am, where my HTTP is, my epochs)
//	records:    one message to each peer and flush, by packet up to 1200 bytes,
//	            else by stream; a head instead when there is nothing to say
//	gaps:       pulled over HTTP from the peer's log, else its snapshot
//	newcomers:  pull a snapshot
//	heads:      with membership's own exchange of states, so that a third
//	            member can tell that something was missed
//	leaving:    told to each member by stream, besides membership's own news
//	lost news:  who hears a process that membership does not hold for alive
//	            exchanges states with it or with another member
//	purges:     posted over HTTP to every member, until it has applied them
//
// The replicator is a pure machine, core, of which the types peer, stream and
// replica are parts. Gossip is the shell around it: one loop in which time
// passes, workers that send and fetch, and the callbacks of the library, which only
// fill an inbox.
//
// Caveats. A replica is advice: late, missing or wrong it costs a request.
// A purge reaches the members of the moment; one that joins later, or was cut
// off for longer than the caller waited, does not learn of it. Whoever has the
// cluster key is trusted to be a member, and can publish any filter and purge
// anything; requests over HTTP cannot be replayed, packets can, without harm to
// the filters. Two members' clocks may differ by 30 s.
//
// Lock order: Gossip.rotating, Gossip.stopping, Gossip.mu, inbox.mu; lines and
// authenticator have locks of their own under which nothing is called.
package gossip
