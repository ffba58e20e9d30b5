package edge

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// One goroutine runs what comes one after the other, others what comes
// meanwhile; all end when nothing comes any more, and with the node.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{work: make(chan func())}
		n.ctx, n.cancel = context.WithCancel(t.Context())
		var ran []string
		here := func() {
			stack := make([]byte, 64)
			id, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte(" ["))
			ran = append(ran, string(id))
		}
		for range 5 {
			n.run(here)
			synctest.Wait()
			time.Sleep(runIdle - 1)
		}
		for _, id := range ran {
			if id != ran[0] {
				t.Fatalf("one after the other they ran in %q", ran)
			}
		}

		release := make(chan struct{})
		n.run(func() { <-release })
		n.run(here)
		synctest.Wait()
		if last := ran[len(ran)-1]; len(ran) != 6 || last == ran[0] {
			t.Errorf("beside one that waits ran %q", ran)
		}
		close(release)
		time.Sleep(runIdle)
		n.background.Wait() // none is left

		n.run(here)
		synctest.Wait()
		n.cancel()
		began := time.Now()
		n.background.Wait()
		if took := time.Since(began); took != 0 || len(ran) != 7 {
			t.Errorf("%d ran; the node waited %v for its end", len(ran), took)
		}
	})
}
