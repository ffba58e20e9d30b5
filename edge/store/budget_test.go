package store

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
)

func TestBudget_isNeverPassed(t *testing.T) {
	b := NewBudget(1000)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(g, 0))
			for range 200_000 {
				n := rnd.Int64N(600)
				if b.Reserve(n) {
					if used := b.Used(); used > b.Limit() || used < n {
						t.Errorf("%d of %d in use while %d are held", used, b.Limit(), n)
					}
					b.Release(n)
				}
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 || !b.Reserve(1000) || b.Reserve(1) || !b.Reserve(0) {
		t.Error("what was released is not there again")
	}
}

func TestBudget_edges(t *testing.T) {
	b := NewBudget(-1)
	if b.Limit() != 0 || b.Reserve(1) || b.Refused() != 1 {
		t.Error("a budget of nothing gives something")
	}
	if b := NewBudget(10); !b.Reserve(5) || b.Reserve(math.MaxInt64) {
		t.Error("a sum that overflows is taken for little")
	}
	for name, f := range map[string]func(){
		"too much back":        func() { b.Release(1) },
		"negative reservation": func() { b.Reserve(-1) },
		"negative release":     func() { NewBudget(1).Release(-1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
