package peerfilter

import "testing"

func TestWatch_advise(t *testing.T) {
	const n = 10_000
	size := mustSize(t, n, 0.001, 1)
	at := func(keys int, change func(*CountingStats)) CountingStats {
		c := filled(t, size.Params, randomHashes(fixedRand(6), keys))
		s := c.Stats()
		if change != nil {
			change(&s)
		}
		return s
	}
	for name, c := range map[string]struct {
		watch Watch
		stats CountingStats
		want  Advice
	}{
		"empty":                    {Watch{Keys: n}, at(0, nil), Advice{Reason: ReasonNone}},
		"one key":                  {Watch{Keys: n}, at(1, nil), Advice{Reason: ReasonNone}},
		"half full":                {Watch{Keys: n}, at(n/2, nil), Advice{Reason: ReasonNone}},
		"just below":               {Watch{Keys: n}, at(n*85/100-1, nil), Advice{Reason: ReasonNone}},
		"85 % of plan":             {Watch{Keys: n}, at(n*85/100, nil), Advice{Rebuild, ReasonLoad, 2 * n}},
		"four times":               {Watch{Keys: n}, at(4*n, nil), Advice{Rebuild, ReasonLoad, 8 * n}},
		"other load and growth":    {Watch{Keys: n, RebuildLoad: 0.5, Growth: 1.5}, at(n/2, nil), Advice{Rebuild, ReasonLoad, n * 3 / 2}},
		"rebuild later than plan":  {Watch{Keys: n, RebuildLoad: 2}, at(n+500, nil), Advice{Level: Warn, Reason: ReasonFill}},
		"pinned":                   {Watch{Keys: n}, at(n/2, func(s *CountingStats) { s.Pinned = 1 }), Advice{Level: Warn, Reason: ReasonPinned}},
		"many pinned":              {Watch{Keys: n}, at(n/2, func(s *CountingStats) { s.Pinned = int(size.Bits / 500) }), Advice{Rebuild, ReasonPinned, n}},
		"underflow":                {Watch{Keys: n}, at(n/2, func(s *CountingStats) { s.Underflows = 1 }), Advice{Level: Warn, Reason: ReasonUnderflow}},
		"keys counted twice":       {Watch{Keys: n}, at(n/4, func(s *CountingStats) { s.Keys *= 2 }), Advice{Level: Warn, Reason: ReasonDeviation}},
		"bits without keys":        {Watch{Keys: n}, at(n/2, func(s *CountingStats) { s.Keys = n / 4 }), Advice{Level: Warn, Reason: ReasonDeviation}},
		"more bits than full plan": {Watch{Keys: n}, at(2*n, func(s *CountingStats) { s.Keys = n / 4 }), Advice{Level: Warn, Reason: ReasonFill}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.watch.Advise(c.stats); got != c.want {
				t.Errorf("advice %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestWatch_isQuietByChance fills many filters to all loads below the rebuild.
func TestWatch_isQuietByChance(t *testing.T) {
	r := fixedRand(7)
	for _, n := range []int{10, 1000, 20_000} {
		size := mustSize(t, n, 0.01, 1)
		for range 20 {
			c := newCounting(t, size.Params)
			for i := range n * 85 / 100 {
				if i%(n/10) == 0 {
					if got := (Watch{Keys: n}).Advise(c.Stats()); got.Level != OK {
						t.Fatalf("%d of %d keys: %+v", i, n, got)
					}
				}
				c.Add(randomHash(r))
			}
		}
	}
}

func TestLevel_string(t *testing.T) {
	for l, want := range map[Level]string{OK: "ok", Warn: "warn", Rebuild: "rebuild", 7: "unknown"} {
		if got := l.String(); got != want {
			t.Errorf("%d: %q, want %q", l, got, want)
		}
	}
}
