// Package ring decides which member of a cluster owns a key.
//
// It is consistent hashing (Karger et al. 1997) with virtual nodes, and with
// bounded load (Mirrokni, Thorup and Zadimoghaddam 2016) for callers that know
// how busy each member is.
//
// Nouns: a member has a name and a weight. It stands on the circle of 2^64
// positions with a number of points, its virtual nodes. The owner of a hash is
// the member of the first point at or after it; the members met when walking
// on from there, each once, are its successors. A [Ring] is an immutable value:
// a change of membership makes a new one, and those who look up share it
// through a pointer.
//
// Caveats:
//   - All members of a cluster must compute the same ring, whatever their
//     version: the placement is a fixed function with fixed seeds, frozen by
//     the golden values in testdata. Changing it moves almost all keys.
//   - The hash that is looked up must be well mixed already; it is used as a
//     position as it is. xxhash64 of the cache key is.
//   - The placement is no secret: whoever knows the members' names can craft
//     keys that share one owner. [Ring.OwnerBounded] bounds what that does.
package ring
