package edge

import "time"

// runIdle is for how long a goroutine waits for the next function.
const runIdle = 10 * time.Second

// run runs f, which must not panic, in the background: in a goroutine that has
// come to the end of an earlier one, or else in a new one. A stack grows by being
// copied, to twice its size each time; that of a forward has to some four times,
// which was an eighth of what a small miss costs. There are as many goroutines
// as there were functions at once in the last runIdle.
func (n *Node) run(f func()) {
	select {
	case n.work <- f:
	default:
		n.background.Add(1)
		go n.runAll(f)
	}
}

// runAll runs f, and then what else there is, until there has been nothing for
// runIdle or the node ends.
func (n *Node) runAll(f func()) {
	defer n.background.Done()
	idle := time.NewTimer(runIdle)
	defer idle.Stop()
	for {
		f()
		idle.Reset(runIdle)
		select {
		case f = <-n.work:
		case <-idle.C:
			return
		case <-n.ctx.Done():
			return
		}
	}
}
