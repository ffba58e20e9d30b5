package peerfilter

import (
	"encoding/binary"
	"math/bits"
)

// bitWriter appends bits to buf, lowest bit of each byte first.
type bitWriter struct {
	buf []byte
	acc uint64 // the n bits not yet in buf
	n   uint   // below 32 between calls
}

// write appends the low n bits of v, n at most 32; the others must be 0.
func (w *bitWriter) write(v uint64, n uint) {
	w.acc |= v << w.n
	w.n += n
	if w.n >= 32 {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(w.acc))
		w.acc >>= 32
		w.n -= 32
	}
}

// rice appends v as a Rice code: v>>param in unary (ones, ended by a zero),
// then the low param bits.
func (w *bitWriter) rice(v uint64, param uint) {
	q := v >> param
	for ; q >= 32; q -= 32 {
		w.write(1<<32-1, 32)
	}
	w.write(1<<q-1, uint(q))
	w.write(0, 1)
	w.write(v&(1<<param-1), param)
}

// finish pads the last byte with zeros and returns buf.
func (w *bitWriter) finish() []byte {
	for ; w.n > 0; w.n -= min(w.n, 8) {
		w.buf = append(w.buf, byte(w.acc))
		w.acc >>= 8
	}
	return w.buf
}

// bitReader reads what bitWriter wrote. After a read beyond the end, or of a
// quotient beyond its bound, bad is true and all further reads yield 0.
type bitReader struct {
	b   []byte
	acc uint64 // the next n bits; those above are 0 or the bits that follow
	n   uint
	bad bool
}

// refill makes n at least 56, or all that is left.
func (r *bitReader) refill() {
	if len(r.b) >= 8 {
		r.acc |= binary.LittleEndian.Uint64(r.b) << r.n
		k := (63 - r.n) / 8
		r.b = r.b[k:]
		r.n += 8 * k
		return
	}
	for r.n <= 56 && len(r.b) > 0 {
		r.acc |= uint64(r.b[0]) << r.n
		r.b = r.b[1:]
		r.n += 8
	}
}

// read returns the next n bits, n at most 32.
func (r *bitReader) read(n uint) uint64 {
	if r.n < n {
		r.refill()
		if r.n < n {
			r.fail()
			return 0
		}
	}
	v := r.acc & (1<<n - 1)
	r.acc >>= n
	r.n -= n
	return v
}

// rice reads one Rice code with a parameter of at most 32, whose value must be
// at most limit.
func (r *bitReader) rice(param uint, limit uint64) uint64 {
	var q uint64
	for {
		if r.n < 32 {
			r.refill()
		}
		ones := uint(bits.TrailingZeros64(^r.acc))
		if ones < r.n {
			q += uint64(ones)
			r.acc >>= ones + 1
			r.n -= ones + 1
			break
		}
		q += uint64(r.n)
		if r.acc, r.n = 0, 0; len(r.b) == 0 || q > limit {
			r.fail()
			return 0
		}
	}
	v := q<<param | r.read(param)
	if v > limit {
		r.fail()
		return 0
	}
	return v
}

func (r *bitReader) fail() { *r = bitReader{bad: true} }

// done reports whether everything was read and well: what is left is the zero
// padding of the last byte.
func (r *bitReader) done() bool {
	return !r.bad && len(r.b) == 0 && r.n < 8 && r.acc == 0
}

// riceCost chooses the parameter of a Rice code for values whose number n and
// sum are known first. It adds up the exact cost of four parameters, from two
// below floor(log2(sum/n)) to one above (from 0, where that is negative). A
// geometric distribution is best served by one of the middle two.
type riceCost struct {
	base uint      // parameter of cost[0]
	cost [4]uint64 // bits
}

func newRiceCost(n, sum uint64) riceCost {
	if n == 0 {
		return riceCost{}
	}
	return riceCost{base: uint(max(bits.Len64(sum/n)-3, 0))}
}

func (c *riceCost) add(v uint64) {
	q := v >> c.base
	c.cost[0] += q + 1
	c.cost[1] += q>>1 + 2
	c.cost[2] += q>>2 + 3
	c.cost[3] += q>>3 + 4
}

// best returns the cheapest parameter, the lowest of equal ones, and its cost
// in bits for the n values that were added.
func (c *riceCost) best(n uint64) (param uint, cost uint64) {
	best := 0
	for i, v := range c.cost {
		if v < c.cost[best] {
			best = i
		}
	}
	return c.base + uint(best), c.cost[best] + n*uint64(c.base)
}
