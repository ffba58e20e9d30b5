package negative

import "math"

// graves remembers when keys were deleted, so that an absence which was asked
// for before that can be refused when it arrives after it.
//
//	A asks the origin for /x, which answers 404, slowly.
//	B creates /x; its entry is deleted here.
//	A's 404 arrives: stored now, it would hide what B made.
//
// A key has one place. Another key's deletion takes that place over, and then
// everything asked for before the older deletion is refused: floor rises, and
// never falls. So an answer is never too late to be refused, at the price of
// some that would have been right: with n shards and d deletions a second, the
// floor trails the present by about 64 n / d seconds.
type graves struct {
	floor int64
	slot  [graveN]grave
}

const (
	graveN     = 64
	graveBytes = graveN*16 + 8
)

type grave struct {
	hash uint64
	at   int64 // nanoseconds since the cache began
}

func (g *graves) reset() {
	g.floor = math.MinInt64
	for i := range g.slot {
		g.slot[i].at = math.MinInt64
	}
}

// The low half of a hash picks the place in a shard's table, the top bits the
// shard; the place of a grave comes from the bits between.
func (g *graves) of(hash uint64) *grave { return &g.slot[hash>>32%graveN] }

func (g *graves) bury(hash uint64, at int64) {
	s := g.of(hash)
	if s.hash != hash {
		g.floor = max(g.floor, s.at)
		*s = grave{hash, at}
		return
	}
	s.at = max(s.at, at)
}

// supersedes reports whether the key may have been deleted at or after asked.
func (g *graves) supersedes(hash uint64, asked int64) bool {
	if asked <= g.floor {
		return true
	}
	s := g.of(hash)
	return s.hash == hash && asked <= s.at
}
