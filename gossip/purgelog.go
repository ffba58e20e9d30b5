package gossip

import (
	"slices"
	"time"
)

// Bounds of the log of changes.
const (
	// keepChanges is for how long a change can be caught up with, by its stamp;
	// maxChanges and maxChangesBytes bound those of one origin,
	// maxChangesTotal those of all.
	keepChanges     = time.Hour
	maxChanges      = 10_000
	maxChangesBytes = 8 << 20
	maxChangesTotal = 64 << 20

	// keepOrigin is for how long it is remembered how far a sequence went that
	// does not grow any more; it is told to others for an hour less, so that one
	// that has forgotten is not told again.
	keepOrigin = 24 * time.Hour
	tellOrigin = keepOrigin - time.Hour

	// maxAhead and maxAheadBytes bound what is held of one sequence beyond a gap.
	maxAheadChanges = 4096
	maxAheadBytes   = 4 << 20
)

// sequence is what is held of one origin's changes: all that were applied of
// those in (floor, head], and some beyond a gap.
type sequence struct {
	origin
	head  uint64 // all up to it are applied
	floor uint64 // all up to it are not held any more
	stamp uint64 // of the newest change ever

	appliedAt time.Duration         // when one was applied here last
	held      []heldChange          // of floor+1 to head
	ahead     map[uint64]heldChange // applied too, beyond a gap
	bytes     int                   // of held and ahead
}

// heldChange is a change in the log, encoded.
type heldChange struct {
	enc   []byte
	stamp uint64
	at    time.Duration // when it was applied here; in held no earlier than the one before
	c     *Change       // decoded, for decodedFor from then on
}

// has reports whether a change was applied.
func (s *sequence) has(seq uint64) bool {
	if seq <= s.head {
		return true
	}
	_, ok := s.ahead[seq]
	return ok
}

// add takes a change that is about to be applied, and reports whether there is
// room for it: one that is beyond a gap may have to come again.
func (s *sequence) add(seq uint64, h heldChange) bool {
	if seq > s.head+1 {
		if len(s.ahead) >= maxAheadChanges || s.bytes+len(h.enc) > maxChangesBytes+maxAheadBytes {
			return false
		}
		if s.ahead == nil {
			s.ahead = map[uint64]heldChange{}
		}
		s.ahead[seq] = h
	} else {
		s.hold(h)
		s.head = seq
	}
	s.appliedAt = max(s.appliedAt, h.at)
	s.bytes += len(h.enc)
	s.stamp = max(s.stamp, h.stamp)
	s.close()
	return true
}

// hold appends to what is held. What was applied before the gap in front of it
// closed counts as applied then.
func (s *sequence) hold(h heldChange) {
	if n := len(s.held); n > 0 {
		h.at = max(h.at, s.held[n-1].at)
	}
	s.held = append(s.held, h)
}

// close moves what a gap kept apart.
func (s *sequence) close() {
	for len(s.ahead) > 0 {
		h, ok := s.ahead[s.head+1]
		if !ok {
			return
		}
		delete(s.ahead, s.head+1)
		s.hold(h)
		s.head++
	}
}

// skip takes note that all up to seq is lost to this member.
func (s *sequence) skip(seq, stamp uint64) {
	if seq <= s.head {
		return
	}
	for _, h := range s.held {
		s.bytes -= len(h.enc)
	}
	s.held = nil
	for n, h := range s.ahead {
		if n <= seq {
			s.bytes -= len(h.enc)
			delete(s.ahead, n)
		}
	}
	s.head, s.floor, s.stamp = seq, seq, max(s.stamp, stamp)
	s.close()
}

// at returns a change that is held.
func (s *sequence) at(seq uint64) (*heldChange, bool) {
	if seq <= s.floor || seq > s.head {
		return nil, false
	}
	return &s.held[seq-s.floor-1], true
}

// trim drops what is older than oldest, and what is too much.
func (s *sequence) trim(oldest uint64) {
	n := 0
	for n < len(s.held) && (s.held[n].stamp < oldest || len(s.held)-n > maxChanges || s.bytes > maxChangesBytes+maxAheadBytes) {
		s.bytes -= len(s.held[n].enc)
		n++
	}
	s.drop(n)
}

// drop forgets the n oldest, whose bytes are uncounted already.
func (s *sequence) drop(n int) {
	if n == 0 {
		return
	}
	clear(s.held[:n])
	s.held = s.held[n:]
	if cap(s.held) > 2*len(s.held)+64 {
		s.held = slices.Clone(s.held)
	}
	s.floor += uint64(n)
}

// beyond lists the runs of changes that are applied beyond the gap.
func (s *sequence) beyond() []seqRange {
	if len(s.ahead) == 0 {
		return nil
	}
	seqs := make([]uint64, 0, len(s.ahead))
	for n := range s.ahead {
		seqs = append(seqs, n)
	}
	slices.Sort(seqs)
	var runs []seqRange
	for _, n := range seqs {
		if len(runs) > 0 && runs[len(runs)-1].to == n-1 {
			runs[len(runs)-1].to = n
			continue
		}
		if len(runs) == maxAckRanges {
			break
		}
		runs = append(runs, seqRange{n, n})
	}
	return runs
}

// hash is what a head adds to the hash of a vector: a sum, so that the order
// does not matter.
func (h seqHead) hash() uint64 { return mix(mix(nameKey(h.name)^mix(h.boot)) + h.seq) }

// mix is the finaliser of splitmix64 (Steele, Lea and Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
