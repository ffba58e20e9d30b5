// Package negative remembers what does not exist: exactly, as negative
// entries, and approximately, as a site's catalog of all that does.
//
// The nouns. A negative entry is a stored response that says "there is
// nothing here": [Cache] keeps it under its whole cache key. A [Catalog] is a
// filter over the paths that exist on a site; what it calls absent needs no
// forward at all. [Distinct] estimates how many different keys were asked for.
// README.md has what was measured.
//
// Absence lives apart: the [Cache] has a memory limit and a creation limit of
// its own, the latter for each site and client network, so that a flood of
// absent keys can't evict a stored response, nor slow one down. At its limit it
// forgets, oldest first; it never waits.
//
// # How a Cache is laid out
//
// A key is hashed with a seed that this process alone knows, and so belongs to
// one of up to 256 shards. A shard is a queue of segments, byte arrays without
// pointers in which records stand one behind the other, and an open-addressed
// table of their positions. New records are appended to the youngest segment;
// when memory is short, the oldest segment is emptied and used again. A record
// takes 18 bytes and its key; the table adds 10 to 15. What many records have in
// common is interned, held once for all shards and counted: the answer (head,
// body, lifetime), and the scheme and authority with which their keys begin.
//
// An entry carries a generation of its caller's, the number of the newest purge
// when it was remembered. So a purge of a host or a prefix need not find the
// entries that it covers: whoever looks one up compares, and [Cache.Review] takes
// them out behind. The other design, to walk over all entries in the purge, took
// 191 ms beside 500 000 of them, and held up all purges after it.
//
// Lock order: shard.mu, then blobs.mu. The budget is atomic, and limiter.mu is
// never held together with another lock.
//
// # Caveats
//
// Memory is what the package accounts for: its arrays exactly, what the Go
// runtime adds to a small allocation by a fixed estimate.
package negative
