package loadtest

import "math"

// course is how the rate of a phase goes over its time: from one rate to
// another, in a straight line or in equal steps.
//
// Arrivals are made by their number, not by gaps: n(t), the integral of the
// rate, is how many have come by t, and its inverse the time of the nth. With
// n growing by 1 they are as regular as the rate allows; with n growing by
// exponential variates of mean 1 they are a Poisson process of that rate,
// however it changes (Lewis and Shedler 1979 call it inversion).
type course struct {
	from, to float64 // arrivals a second
	steps    int     // equal ones; below 2: a straight line
	seconds  float64
}

// when is the time, in seconds, of the arrival number n; +Inf when it would be
// after the end.
func (c course) when(n float64) float64 {
	if c.steps >= 2 {
		return c.step(n)
	}
	// n = from t + slope t²/2, in the form of the root that subtracts nothing
	// when the slope is small.
	slope := (c.to - c.from) / c.seconds
	root := c.from*c.from + 2*slope*n
	if n > 0 && root < 0 || c.from == 0 && c.to == 0 {
		return math.Inf(1) // a rate that falls to 0 never gets so far
	}
	t := 2 * n / (c.from + math.Sqrt(max(root, 0)))
	return c.within(t)
}

func (c course) step(n float64) float64 {
	length := c.seconds / float64(c.steps)
	var t float64
	for i := range c.steps {
		rate := c.from + (c.to-c.from)*float64(i)/float64(c.steps-1)
		if n <= rate*length {
			if rate == 0 {
				return t
			}
			return c.within(t + n/rate)
		}
		n -= rate * length
		t += length
	}
	return math.Inf(1)
}

func (c course) within(t float64) float64 {
	if !(t <= c.seconds) {
		return math.Inf(1)
	}
	return t
}
