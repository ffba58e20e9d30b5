//go:build !race

package edge

// raceEnabled scales down what is too slow under the race detector.
const raceEnabled = false
