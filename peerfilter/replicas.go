package peerfilter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

var (
	// ErrMember means that the named member has no replica.
	ErrMember = errors.New("no replica of this member")
	// ErrFull means that [MaxMembers] members are held already.
	ErrFull = errors.New("too many members")
)

// Replicas holds the published bits of all peers for one partition and answers
// for all of them in one look-up, in about the time of two memory accesses.
//
// Members of one layout share a matrix: one row a position, one lane a member.
// The eight rows of a key, ANDed, are the members that may hold it. A matrix
// is as wide as it must be (1, 2, 4, ... 64 lanes, then whole words) and never
// becomes narrower. Members whose layout is another (because they have grown
// and others have not yet) stand in a matrix of their own, so each layout in
// use costs a look-up some 10 to 100 ns more.
//
// A member is known while its replica is in sequence, which is for the caller
// to say: [Replicas.Load] and [Replicas.Resume] make it known,
// [Replicas.Suspend] and [Replicas.Drop] unknown. Look-ups report an unknown
// member apart from those that answer yes or no.
//
// Lookup takes no lock and does not allocate. The other methods change or copy
// replicas; they are safe for concurrent use and serialised by one lock.
//
// # Why a reader never sees half a snapshot
//
// Everything but the matrix words is an immutable state behind one pointer.
// A lane is loaded only while the current state does not have it live; so
// before the first word of it is written, a state without it was stored, and
// after the last, one with it. A reader loads the state, reads rows, and loads
// the state again: if that is still the same one, no load of a lane that is live
// in it had begun when the rows were read, because all these accesses are atomic and
// have one order. If it is another one, the reader begins again. A lane that
// goes to another member is protected by the same rule.
//
// Records are applied to live lanes in place. Their positions are absolute and
// only those change that differ, so a key that stays has all its bits all along.
type Replicas struct {
	params Params
	state  atomic.Pointer[state]

	mu      sync.Mutex
	members map[string]*replica
	groups  []*group // those with members, in order of creation
}

// state is what a look-up sees. It is immutable, but for the words that the
// matrices point to.
type state struct {
	groups []view         // those with known members
	narrow bool           // there is one group, of at most 64 lanes
	names  []string       // by member id
	ids    map[string]int // of known members
}

// view is one group as look-ups see it.
type view struct {
	m    matrix            // a copy, so that a look-up follows one pointer less
	live [maskWords]uint64 // lanes that are known
	ids  []uint8           // member id of each lane
}

// group is the members of one layout.
type group struct {
	m     *matrix
	lanes []*replica // by lane; nil: free
}

// replica is one member's column. Guarded by Replicas.mu.
type replica struct {
	name    string
	group   *group
	lane    int
	known   bool
	count   uint64
	setHash uint64
}

// ReplicaStats describes one member's replica.
type ReplicaStats struct {
	Member       string
	Params       Params
	Known        bool    // in sequence: look-ups ask it
	BitsSet      int     // positions set
	Fill         float64 // BitsSet / m
	ExpectedRate float64 // false-positive probability that Fill stands for
	SetHash      uint64
}

// NewReplicas returns replicas without members. p is the layout that members
// are expected to have; it is only checked, memory comes with the first Load.
func NewReplicas(p Params) (*Replicas, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	r := &Replicas{params: p, members: make(map[string]*replica)}
	r.state.Store(&state{})
	return r, nil
}

// Params returns the layout that members are expected to have.
func (r *Replicas) Params() Params { return r.params }

// Lookup returns the members that may hold the key with hash h.
func (r *Replicas) Lookup(h Hash) (set Set) {
	// The usual case: all known members have one layout, and are 64 at most.
	if st := r.state.Load(); st.narrow {
		set.state = st
		if lanes := st.groups[0].m.lookup(h[0], h[1], st.groups[0].live[0]); lanes != 0 {
			set.add(&st.groups[0], 0, lanes)
		}
		if r.state.Load() == st {
			return set
		}
	}
	return r.lookupGroups(h)
}

// lookupGroups is Lookup in any number of groups.
func (r *Replicas) lookupGroups(h Hash) Set {
	for {
		set := Set{state: r.state.Load()}
		for i := range set.state.groups {
			v := &set.state.groups[i]
			if v.m.lanes > 64 {
				for i, lanes := range v.m.lookupWide(h[0], h[1], &v.live) {
					set.add(v, i*64, lanes)
				}
			} else {
				set.add(v, 0, v.m.lookup(h[0], h[1], v.live[0]))
			}
		}
		if r.state.Load() == set.state {
			return set
		}
	}
}

// Load makes the replica of member equal to snap, and the member known. A
// replica that it had, with whatever layout, is replaced at once or, where
// there is no lane to spare, unknown for the time of the copy: some ns a
// position. It fails with [ErrFull] for the member after [MaxMembers].
func (r *Replicas) Load(member string, snap Snapshot) error {
	if err := snap.params.Validate(); err != nil {
		return fmt.Errorf("load replica of %s: %w", member, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.members[member]
	if old == nil && len(r.members) >= MaxMembers {
		return fmt.Errorf("load replica of %s: %w", member, ErrFull)
	}
	g := r.groupLocked(snap.params)
	lane := slices.Index(g.lanes, nil)
	switch {
	case lane >= 0:
	case old != nil && old.group == g:
		lane = old.lane
		old.known = false
		r.publishLocked()
	default:
		lane = len(g.lanes)
		g.widen(lane + 1)
	}
	g.m.setColumn(lane, snap.bitmap())
	if old != nil {
		old.group.lanes[old.lane] = nil
	}
	rep := &replica{name: member, group: g, lane: lane, known: true, count: snap.count, setHash: snap.setHash}
	g.lanes[lane] = rep
	r.members[member] = rep
	r.publishLocked()
	return nil
}

// groupLocked returns the group of members of layout p, a new one if need be.
func (r *Replicas) groupLocked(p Params) *group {
	for _, g := range r.groups {
		if g.m.params == p {
			return g
		}
	}
	g := &group{m: newMatrix(p, 1), lanes: make([]*replica, 1)}
	r.groups = append(r.groups, g)
	return g
}

// widen makes room for n members, in a copy of the matrix: readers keep the
// old one, which does not change any more, until the next state is published.
func (g *group) widen(n int) {
	lanes := lanesFor(n)
	g.m = g.m.widened(lanes)
	g.lanes = append(g.lanes, make([]*replica, lanes-len(g.lanes))...)
}

// publishLocked stores a new state for readers and forgets groups without members.
func (r *Replicas) publishLocked() {
	r.groups = slices.DeleteFunc(r.groups, func(g *group) bool {
		return !slices.ContainsFunc(g.lanes, func(rep *replica) bool { return rep != nil })
	})
	st := &state{ids: make(map[string]int, len(r.members))}
	for _, g := range r.groups {
		v := view{m: *g.m, ids: make([]uint8, len(g.lanes))}
		for lane, rep := range g.lanes {
			if rep == nil || !rep.known {
				continue
			}
			id := len(st.names)
			st.names = append(st.names, rep.name)
			st.ids[rep.name] = id
			v.ids[lane] = uint8(id)
			v.live[lane/64] |= 1 << (lane % 64)
		}
		if v.live != [maskWords]uint64{} {
			st.groups = append(st.groups, v)
		}
	}
	st.narrow = len(st.groups) == 1 && st.groups[0].m.lanes <= 64
	r.state.Store(st)
}

// Apply brings the replica of member forward by t and returns its set-hash
// after that: if it is not the record's, replica and publisher have diverged,
// and the caller suspends the member. Whether the member is known does not
// change. It fails with [ErrMember] without a replica, and with [ErrCorrupt],
// nothing changed, for a position beyond the replica's layout.
func (r *Replicas) Apply(member string, t Transitions) (setHash uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.members[member]
	if rep == nil {
		return 0, fmt.Errorf("apply to replica of %s: %w", member, ErrMember)
	}
	m := rep.group.m
	for _, list := range [2][]uint32{t.Set, t.Clear} {
		if len(list) > 0 && uint64(slices.Max(list)) >= m.params.Bits() {
			return rep.setHash, fmt.Errorf("apply to replica of %s: position %d of %d: %w", member, slices.Max(list), m.params.Bits(), ErrCorrupt)
		}
	}
	for part := range slices.Chunk(t.Set, warmed) {
		m.warm(part, rep.lane)
		for _, pos := range part {
			if m.set(pos, rep.lane, true) {
				rep.setHash += mix64(uint64(pos))
				rep.count++
			}
		}
	}
	for part := range slices.Chunk(t.Clear, warmed) {
		m.warm(part, rep.lane)
		for _, pos := range part {
			if m.set(pos, rep.lane, false) {
				rep.setHash -= mix64(uint64(pos))
				rep.count--
			}
		}
	}
	return rep.setHash, nil
}

// Suspend makes member unknown and keeps its replica, to which records can
// still be applied. It reports whether there is one.
func (r *Replicas) Suspend(member string) bool { return r.setKnown(member, false) }

// Resume makes member known again with the replica that was kept. It reports
// whether there is one.
func (r *Replicas) Resume(member string) bool { return r.setKnown(member, true) }

func (r *Replicas) setKnown(member string, known bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.members[member]
	if rep == nil {
		return false
	}
	if rep.known != known {
		rep.known = known
		r.publishLocked()
	}
	return true
}

// Drop forgets member and its replica. It reports whether there was one. The
// lane is free for another member, and the memory of a layout that nobody has
// any more is released.
func (r *Replicas) Drop(member string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.members[member]
	if rep == nil {
		return false
	}
	delete(r.members, member)
	rep.group.lanes[rep.lane] = nil
	r.publishLocked()
	return true
}

// Bits returns a copy of member's bitmap: position i is bit i%64 of word i/64.
// It fails with [ErrMember] without a replica.
func (r *Replicas) Bits(member string) ([]uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.members[member]
	if rep == nil {
		return nil, fmt.Errorf("bits of %s: %w", member, ErrMember)
	}
	words := makeWords(rep.group.m.params.words())
	for i := range words {
		words[i] = rep.group.m.column(i, rep.lane)
	}
	return words, nil
}

// Audit counts member's set-hash afresh from the bits and returns it beside
// the one that was kept step by step. If they differ, memory or code is at fault.
// It fails with [ErrMember] without a replica. Changes to replicas
// wait for it meanwhile, look-ups do not.
func (r *Replicas) Audit(member string) (recounted, kept uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.members[member]
	if rep == nil {
		return 0, 0, fmt.Errorf("audit replica of %s: %w", member, ErrMember)
	}
	m := rep.group.m
	for i := range m.params.words() {
		for b := range setBits64(m.column(i, rep.lane)) {
			recounted += mix64(uint64(i*64 + b))
		}
	}
	return recounted, rep.setHash, nil
}

// Bytes returns the memory of all replicas together: of their matrices, in
// which some lanes may be free.
func (r *Replicas) Bytes() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.groups {
		n += 8 * int64(len(g.m.words))
	}
	return n
}

// Stats describes all replicas, in the order of their members' names.
func (r *Replicas) Stats() []ReplicaStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]ReplicaStats, 0, len(r.members))
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		rep := r.members[name]
		p := rep.group.m.params
		fill := float64(rep.count) / float64(p.Bits())
		out = append(out, ReplicaStats{
			Member:       name,
			Params:       p,
			Known:        rep.known,
			BitsSet:      int(rep.count),
			Fill:         fill,
			ExpectedRate: Rate(p, KeysAt(p, fill)),
			SetHash:      rep.setHash,
		})
	}
	return out
}
