package gossip

import (
	"crypto/hmac"
	"encoding/base64"
	"slices"
	"time"
)

// maxCarryLen bounds the changes that one request carries.
const maxCarryLen = 3 << 10

// maxCarryLook bounds how many changes are looked at for one request.
const maxCarryLook = 4096

// carry returns what a request to a peer must tell it: the changes that have
// been applied here lately, whenever they were made, that match and that the peer is not known to have. Those that don't match are no
// matter of the request: in a storm of purges it would hardly ever find the
// peer in step. Where they are too many to look at or to carry, the peer is
// told how far it must be instead. Nil when there is nothing to tell.
func (c *logCore) carry(now time.Duration, peer string, match func(*Change) bool) []byte {
	p := c.peer(peer)
	var a catchUp
	size, looked := 0, 0
	// put reports whether there was room.
	put := func(s *sequence, seq uint64, h heldChange) bool {
		if looked++; looked > maxCarryLook {
			return false
		}
		if !match(h.c) {
			return true
		}
		if size+len(h.enc) > maxCarryLen {
			return false
		}
		size += len(h.enc)
		a.records = append(a.records, record{s.origin, seq, h.enc})
		return true
	}
	for _, s := range c.seqs {
		if now >= s.appliedAt+decodedFor {
			continue
		}
		shown := uint64(0)
		if p != nil {
			shown = p.shown[s.origin]
		}
		fits := true
		seq := s.head
		for ; seq > max(shown, s.floor) && fits; seq-- {
			h, _ := s.at(seq)
			if h.c == nil {
				break // those before are older still
			}
			fits = put(s, seq, *h)
		}
		if !fits || seq == s.floor && seq > shown && len(s.held) >= maxChanges {
			a.cut = append(a.cut, seqHead{s.origin, s.head, 0})
		}
		for _, rg := range s.beyond() {
			for seq := rg.from; seq <= rg.to; seq++ {
				// What is beyond a gap no head can ask for.
				if h := s.ahead[seq]; h.c != nil && !put(s, seq, h) {
					a.more = true
				}
			}
		}
		a.more = a.more || len(s.ahead) > 0 && len(s.beyond()) == maxAckRanges
	}
	if len(a.cut) == 0 && len(a.records) == 0 && !a.more {
		return nil
	}
	if len(a.cut) > 64 {
		a.cut, a.more = a.cut[:64], true
	}
	slices.Reverse(a.records) // the oldest first
	return encodeCatchUp(a)
}

// carried applies what a request told, and reports whether this member is now
// as far as the one that asked, where the request is concerned.
func (c *logCore) carried(now time.Duration, a catchUp) (inStep bool) {
	c.takeRecords(now, a.records)
	inStep = !a.more
	for _, h := range a.cut {
		if s := c.find(h.origin); s == nil || s.head < h.seq {
			inStep = false
		}
	}
	for _, r := range a.records {
		if s := c.find(r.origin); s == nil || !s.has(r.seq) {
			inStep = false // there was no room for it
		}
	}
	c.tick(now)
	return inStep
}

// Carry returns what a request for a key to another member must tell it about
// recent changes, so that it does not answer from before one that this member
// has applied: the value of a header field, empty when there is nothing to
// tell. match reports whether a change may concern the key.
func (g *Gossip) Carry(member string, match func(*Change) bool) string {
	l := g.changes
	if l.quiet() {
		return ""
	}
	l.mu.Lock()
	b := l.core.carry(l.now(), member, match)
	l.mu.Unlock()
	if b == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(b, g.auth.carryMac(b)...))
}

// Carried applies what a request tells about changes, with OnChange, and
// reports whether this member has applied all that the one that asks has: if
// not, it must answer with nothing older than the request.
// A value that no member has made changes nothing and is counted.
func (g *Gossip) Carried(value string) (inStep bool) {
	if value == "" {
		return true
	}
	l := g.changes
	b, err := base64.RawURLEncoding.DecodeString(value)
	if err == nil {
		b, err = g.auth.checkCarryMac(b)
	}
	var a catchUp
	if err == nil {
		a, err = decodeCatchUp(b)
	}
	if err != nil {
		l.mu.Lock()
		l.core.counts.drop[dropCarried]++
		l.mu.Unlock()
		return false
	}
	l.do(func(now time.Duration) { inStep = l.core.carried(now, a) })
	return inStep
}

const carryMacLen = 16

// carryMac is by what members know that a value is from one of them: none
// without keys.
func (a *authenticator) carryMac(b []byte) []byte {
	keys := *a.keys.Load()
	if len(keys) == 0 {
		return nil
	}
	return mac(keys[0], "edged-carry-1", string(b))[:carryMacLen]
}

// checkCarryMac returns b without its mac.
func (a *authenticator) checkCarryMac(b []byte) ([]byte, error) {
	keys := *a.keys.Load()
	if len(keys) == 0 {
		return b, nil
	}
	if len(b) < carryMacLen {
		return nil, errNoMac
	}
	b, sum := b[:len(b)-carryMacLen], b[len(b)-carryMacLen:]
	for _, k := range keys {
		if hmac.Equal(mac(k, "edged-carry-1", string(b))[:carryMacLen], sum) {
			return b, nil
		}
	}
	return nil, errBadMac
}
