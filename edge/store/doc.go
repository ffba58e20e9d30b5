// Package store holds responses in memory.
//
// A [Store] has partitions. Each has a budget of bytes that it never passes, an
// index from [Key] to the responses under it (one per variant), an eviction
// policy, and a [Filter] that is told of each key exactly once when it comes
// and once when it goes. A [Response] is immutable once it is put; whoever got
// it may stream its [Body] for as long as they like, evicted or not. A [Budget]
// bounds what is not stored yet: bodies in flight.
//
// # Caveats
//
// The store decides nothing about HTTP: not what may be stored, nor whether it
// is fresh, nor which variant matches. Get is not a use; call Hit. A purge does
// not see what is put while it runs. Responses for whose tags the index has no
// room any more are found by a walk only, and not counted by tag. Memory that an evicted response still
// takes while a client reads it is counted by nobody. Strings and chunks that
// are parts of larger allocations hold more than is counted.
//
// # Locks
//
// Order: partition.rebuilding, then partition.mu, then whatever the Filter
// takes. The Filter is the one thing called under mu that is not ours: only so
// are index and filter changed together. Readers (Get, Hit, Filter, Bytes) take
// no lock; a Get takes mu only when its walk met a table that was being
// replaced, and had found nothing.
//
// # Tags
//
// Each partition has an index from tags to the responses that carry them, kept
// in step with what is stored: tags.go.
//
// # Two designs of the policy and its lock
//
// Per shard: each shard has its queues, a lock and a part of the budget. Writers
// of different shards never meet. But a partition of 1 MiB in 64 shards could
// store nothing above 16 KiB, so shards must borrow, in the end from all others
// (an object may be as large as its partition), locking them one after the
// other while others do the same in another order; a reservation that waits for
// room held by a second one that waits too must be refused or unwound; shards
// fill unevenly, and each small queue is a tenth of little.
//
// Per partition, chosen: the index is in shards, which bound how long a table's
// growth, a step of a rebuild or of a purge takes; queues, budget and one lock
// for writers belong to the partition. That is the policy as published, to the
// byte; the limit and the pairing with the filter hold because a writer is
// alone; the largest object needs no rule of its own. The price is that writers
// of a partition wait for each other. They come after a fetch from a peer or
// an origin, hits never wait for them, and what is under the lock is 0.2 to
// 1 µs (allocation is outside): at 100 000 stores a second, more than a node's
// network brings, at most a tenth of the lock's time. The longest hold is an object as
// large as the partition: 13 ms to evict 60 000 small ones for one of 63 MiB.
//
// # Two designs of bodies
//
// Slabs: large regions without pointers, handed out in pieces, counted
// references. The collector's work follows the number of slabs; the price is a
// copy of each body out of the buffer in which it arrived, fragmentation, and a
// count that each reader must give back on each path, or else a client is sent
// another response's bytes.
//
// Heap chunks, chosen: the chunks in which a body arrived are adopted as they
// are. No copy, no use after free. They hold no pointers, so the collector marks
// but never scans them: its work follows the number of responses, not the
// bytes. [Response.Compact] puts a small head and body in one allocation.
// Callers see a Body only by its methods, so slabs can come behind it.
//
// The collector, with 1 000 000 responses of 280 bytes of head and 600 of body
// (1347 bytes each in all, keys and index included): 0.50 s a cycle and 0.86 s
// of processor time; pauses up to 2 ms on a busy host. A cycle comes when the
// heap has doubled or meets the memory limit that the process sets, so at
// 100 MB/s of new bodies every 13 s: 7 % of one core. Without Compact 0.56 s
// and 0.88 s, and 1379 bytes.
//
// What is counted is what the heap holds: 0.986 to 1.000 of it, from 32 MiB of
// tiny bodies to those million. 10 GiB of distinct responses (log-normal, up to
// 16 MiB, as chunks of 64 KiB) through a partition of 64 MiB: the whole process
// stayed under 109 MiB resident with a memory limit of 110 MiB, at 11 % of the
// time collecting, and under 245 MiB without one. So a node sets the limit.
//
// # Measured
//
// 2 vCPU of an Intel Xeon (model 167), shared with other work, Go 1.26.8, keys
// of 74 bytes asked for evenly at random, so nearly every line touched is cold
// from 100 000 keys on; the better of two runs:
//
//	keys                        1000   100 000   1 000 000
//	Get and Hit, found         15 ns    120 ns      320 ns    0 allocations
//	  the cold key alone        2 ns      9 ns       37 ns
//	Get, absent                 6 ns     36 ns      130 ns    0 allocations
//
//	Put that evicts one       430 ns (10 000 stored), 1.0 µs (300 000)
//	Put that replaces         190 ns
//	Zipf mix, 74 % hits       490 ns a request on both cores at once
//	Rebuild, 1 000 000 keys    43 ms, the filter's own work apart
//	Purge, 1 000 000 keys     128 ms, the judge's own work apart
//
// Hit ratio against LRU with the same bytes, 60 000 keys of log-normal size,
// 400 000 requests, the first quarter not counted:
//
//	                                       S3-FIFO     LRU
//	Zipf 0.9, cache of a tenth               0.675   0.602
//	Zipf 0.9, cache of a hundredth           0.444   0.332
//	Zipf 0.7, cache of a tenth               0.445   0.350
//	Zipf 0.9, 30 % asked for once            0.466   0.368
//	Zipf 0.9, 10 % once, drifting            0.571   0.509
//
// Two uses instead of one to leave the small queue: 0.675, 0.444, 0.446, 0.460,
// 0.568. A small queue of a fifth: 0.668, 0.436, 0.437, 0.461, 0.565; of a
// twentieth: 0.678, 0.448, 0.449, 0.469, 0.573, which is better still on such
// traces, but leaves a large response hardly any trial.
package store
