package loadtest

import (
	"math"
	"math/rand/v2"
)

// zipf draws ranks 0 to n-1, rank k with a probability proportional to
// (k+1)^-s, for any exponent s >= 0 in constant time and memory, by
// rejection-inversion (Hörmann and Derflinger 1996, "Rejection-inversion to
// generate variates from monotone discrete distributions"). The sampler of
// the standard library wants s > 1, where the web has 0.6 to 1.
//
// The integral of x^-s is H(x) = (x^(1-s) - 1)/(1-s), and ln x at s = 1. A
// uniform draw over H's range is inverted to x; the rank k = round(x) is
// accepted at once when x is close enough below it, else with the exact test.
// At most a few percent of the draws are rejected.
type zipf struct {
	s          float64
	n          float64
	hx1, hn    float64 // H at the ends of the range, H(1.5) - 1 and H(n + 1/2)
	acceptance float64 // k - x up to here needs no test
}

func newZipf(s float64, n int) *zipf {
	z := &zipf{s: s, n: float64(n)}
	z.hx1 = z.h(1.5) - 1
	z.hn = z.h(z.n + 0.5)
	z.acceptance = 2 - z.hInverse(z.h(2.5)-math.Pow(2, -s))
	return z
}

func (z *zipf) draw(r *rand.Rand) uint64 {
	if z.n <= 1 {
		return 0
	}
	for {
		u := z.hn + r.Float64()*(z.hx1-z.hn)
		x := z.hInverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.acceptance || u >= z.h(k+0.5)-math.Pow(k, -z.s) {
			return uint64(k) - 1
		}
	}
}

// h is H, written through expm1 so that exponents near 1 lose no digits.
func (z *zipf) h(x float64) float64 {
	l := math.Log(x)
	return expm1Over((1-z.s)*l) * l
}

func (z *zipf) hInverse(y float64) float64 {
	t := max(y*(1-z.s), -1) // rounding may pass the pole
	return math.Exp(log1pOver(t) * y)
}

// expm1Over returns (e^x - 1)/x, 1 at 0.
func expm1Over(x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1 + x/2
	}
	return math.Expm1(x) / x
}

// log1pOver returns ln(1+x)/x, 1 at 0.
func log1pOver(x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1 - x/2
	}
	return math.Log1p(x) / x
}
