// Package loadtest drives a cluster of edged nodes over HTTP and reports what
// it saw beside what the nodes and the origin counted.
//
// # Nouns
//
// A [Scenario] says what is asked: phases with a rate, a popularity, a share of
// absent keys. A workload turns it into a schedule, a fixed sequence of
// arrivals that depends on the seed alone. The driver sends each arrival at its
// time, whatever became of the earlier ones (open loop), and counts latency from
// the scheduled time, so that a stall of the server is seen by everyone who
// would have waited in it. The [Origin] makes bodies from their paths, so that
// every byte of every answer is checked. A [Fleet] is a number of edged
// processes, started here and always stopped here. The [Report] holds the
// counts of all three parties, and says where they disagree.
//
// # Caveats
//
// The package imports nothing else of the project: it believes nodes only what
// they say on the wire. Driver, origin and nodes of a local run share one
// machine; the report warns when the driver itself was late.
package loadtest
