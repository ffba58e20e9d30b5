package loadtest

import "fmt"

// crossCheck sets the counts of the three parties beside each other and
// returns where they disagree, in words. Counts are exact; the tolerances are
// for what the parties cannot know of each other: a request without an answer
// may or may not have reached the node, a background validation is nobody's
// request, a node that died took its last counts along.
func crossCheck(g *Group, counts []counters, origin map[string]int64) []string {
	out := []string{}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	// The driver by itself: each request that was sent has one fate.
	unanswered := g.ErrorKinds[errTimeout] + g.ErrorKinds[errRefused] + g.ErrorKinds[errReset] + g.ErrorKinds[errTransport]
	if fates := g.Responses + unanswered + g.Driver.Abandoned; fates < g.Requests || g.Responses+g.Driver.Abandoned > g.Requests {
		say("driver: %d requests were sent, but %d were answered, %d failed and %d were abandoned", g.Requests, g.Responses, unanswered, g.Driver.Abandoned)
	}
	if len(counts) == 0 || len(g.Unchecked) > 0 {
		return out
	}
	died := false
	for _, n := range g.Nodes {
		died = died || n.Died
	}
	if died {
		say("a node died during the run: its counts end before, so nodes and driver can't be compared")
		return out
	}

	// The driver and the nodes.
	var atNodes, collapsed, viaPeer, revalidated, forwarded, shielded, uncertain, originUnanswered int64
	for _, c := range counts {
		r := c.requests
		atNodes += total(r)
		collapsed += c.collapsed
		viaPeer += r["peer"]
		revalidated += r["revalidated"]
		forwarded += r["peer"] + r["shield"] + r["miss"]
		shielded += c.shielded
		uncertain += r["error"] + r["revalidated"] + r["stale"]
		for result, n := range c.origin {
			if !statusResult(result) {
				originUnanswered += n
			}
		}
	}
	if atNodes < g.Responses || atNodes > g.Requests+g.Driver.Resent {
		say("requests: the driver has %d answers to %d requests, the nodes counted %d", g.Responses, g.Requests, atNodes)
	}
	slack := g.Requests + g.Driver.Resent - g.Responses // these may have been anything at the nodes
	seen := func(what string, driver, nodes int64) {
		if nodes < driver || nodes > driver+slack {
			say("%s: the answers say %d, the nodes counted %d", what, driver, nodes)
		}
	}
	var hits, negatives, purges int64
	for _, c := range counts {
		purges += c.purges
		hits += c.requests["hit"] + c.requests["stale"]
		negatives += c.requests["negative"]
	}
	if p := g.Purges; purges < p.Requests-p.Errors || purges > p.Requests {
		say("purges: %d were sent, of which %d failed, the nodes counted %d", p.Requests, p.Errors, purges)
	}
	seen("answers from the asked node's store", g.Sources[fromHit]+g.Sources[fromStale], hits)
	// What a peer's answer has shown to be still right is "revalidated" for the
	// node, and its Cache-Status says peer all the same.
	if got := g.Sources[fromPeer]; got > viaPeer+revalidated || got < viaPeer-slack {
		say("answers from a peer: the answers say %d, the nodes counted %d, and %d that were validated", got, viaPeer, revalidated)
	}
	seen("remembered absences", g.Sources[fromNegative], negatives)

	// Each look-up that missed locally is in one of the four bloom counters;
	// who joined another's forward looked nothing up.
	if n := g.lookups(); n < forwarded-collapsed || n > forwarded+uncertain+negatives {
		say("look-ups: the bloom counters add up to %d, but %d requests missed locally, %d of which joined another's", n, forwarded, collapsed)
	}
	if answered := g.Sources[fromShield] + g.Sources[fromOwner]; shielded < answered {
		say("requests to a key's shield or owner: the answers say %d, the nodes counted %d", answered, shielded)
	}
	if asked := g.Bloom.PositiveHit + g.Bloom.PositiveMiss; g.PeerRPCs < asked {
		say("peer RPCs: %d look-ups asked a peer, but only %d were sent", asked, g.PeerRPCs)
	}

	// The nodes and the origin.
	if origin != nil {
		// A request without an answer may have ended before it got there.
		if got := total(origin); got > g.OriginRequests || got < g.OriginRequests-originUnanswered {
			say("origin: it counted %d requests, the nodes %d, of which %d had no answer", got, g.OriginRequests, originUnanswered)
		}
	}
	return out
}

// statusResult reports whether a result of edged_origin_requests_total is a
// status or a class of them, 304 or 2xx, rather than a kind of failure.
func statusResult(result string) bool {
	return len(result) == 3 && result[0] >= '1' && result[0] <= '5'
}
