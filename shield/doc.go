// Package shield is what stands between a miss and the origin: which member
// shields a key, the connections to an origin's servers and which of them is
// healthy, and the fields that a message gains and loses on the way.
//
// Nouns: the shield of a key is the member through which the others' misses go,
// so that the origin sees one request instead of one per node ([Choose]). A
// [Pool] is one origin: several URLs of equal worth. An attempt is one sending
// of a request, or the try to connect for it. A [Transport] makes attempts over
// HTTP/1.1; what fails in one is an [*Error] with a kind and a phase. A [Limit]
// bounds how many requests are at an origin at once, and how many wait. A hop is
// a step from node to node ([Hop]).
//
// Caveats:
//   - Answers of an origin are framed by this package: net/http sees only heads
//     and bodies that this package understood, in the same way. See conn.go.
//     It costs a request some 5 us and 26 allocations on top of net/http's 22 us
//     and 62 (BenchmarkTransport and BenchmarkPlainTransport, 1 KiB on loopback,
//     two vCPUs of a Xeon model 167, Go 1.26.8).
//   - A request is sent twice only where RFC 9110 section 9.2.2 allows it, and
//     never a third time.
//   - HTTP/2 to origins is not spoken.
//
// Lock order: Pool.mu, conn.mu and Limit.mu are leaves; nothing is called under them
// that takes another lock.
package shield
