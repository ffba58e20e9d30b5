package peerfilter

import (
	"container/list"
	"math/bits"
	"sync"
)

// The rivals of the benchmarks that no library has: textbook forms, written
// for the comparison.

// classic is a Bloom filter without blocks: k positions anywhere, by double
// hashing, with an exit at the first clear one.
type classic struct {
	words []uint64
	m     uint64
	k     int
}

func newClassic(m uint64, k int) *classic {
	return &classic{words: make([]uint64, (m+63)/64), m: m, k: k}
}

func (f *classic) Add(h Hash) {
	x := h[0]
	for range f.k {
		pos, _ := bits.Mul64(x, f.m)
		f.words[pos/64] |= 1 << (pos % 64)
		x += h[1]
	}
}

func (f *classic) MayContain(h Hash) bool {
	x := h[0]
	for range f.k {
		pos, _ := bits.Mul64(x, f.m)
		if f.words[pos/64]>>(pos%64)&1 == 0 {
			return false
		}
		x += h[1]
	}
	return true
}

// blocked is a Bloom filter in blocks of 512 bits with double hashing inside
// the block and an exit at the first clear bit, from two 32-bit halves of one hash.
type blocked struct {
	words  []uint64
	blocks uint64
	k      int
}

func newBlocked(blocks uint64, k int) *blocked {
	return &blocked{words: make([]uint64, blocks*8), blocks: blocks, k: k}
}

func (f *blocked) Add(h Hash) {
	b, _ := bits.Mul64(h[0], f.blocks)
	w := f.words[b*8:][:8]
	h1, h2 := uint32(h[1]), uint32(h[1]>>32)
	for range f.k {
		h1 += h2
		w[h1>>29] |= 1 << (h1 >> 23 & 63)
	}
}

func (f *blocked) MayContain(h Hash) bool {
	b, _ := bits.Mul64(h[0], f.blocks)
	w := f.words[b*8:][:8]
	h1, h2 := uint32(h[1]), uint32(h[1]>>32)
	for range f.k {
		h1 += h2
		if w[h1>>29]>>(h1>>23&63)&1 == 0 {
			return false
		}
	}
	return true
}

// oneMutex is a Counting whose writers all wait for one another.
type oneMutex struct {
	mu sync.Mutex
	st stripe
	c  *Counting
}

func (f *oneMutex) Add(h Hash) {
	f.mu.Lock()
	f.c.addLocked(&f.st, blockOf(h[0], f.c.params.Blocks), h[1])
	f.mu.Unlock()
}

func (f *oneMutex) Remove(h Hash) {
	f.mu.Lock()
	f.c.removeLocked(&f.st, blockOf(h[0], f.c.params.Blocks), h[1])
	f.mu.Unlock()
}

// listLRU is the cache that is written first: a map, a list, a mutex.
type listLRU struct {
	mu    sync.Mutex
	max   int
	order *list.List
	byKey map[string]*list.Element
}

func newListLRU(max int) *listLRU {
	return &listLRU{max: max, order: list.New(), byKey: make(map[string]*list.Element, max)}
}

func (c *listLRU) Get(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if ok {
		c.order.MoveToFront(e)
	}
	return ok
}

func (c *listLRU) Put(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.order.MoveToFront(e)
		return
	}
	if c.order.Len() >= c.max {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.byKey, last.Value.(string))
	}
	c.byKey[key] = c.order.PushFront(key)
}
