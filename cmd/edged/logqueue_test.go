package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestLogQueue_keepsLinesInOrder(t *testing.T) {
	var out bytes.Buffer
	q := newLogQueue(&out)
	var want strings.Builder
	for i := range logLines / 2 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		q.Write([]byte(line))
	}
	q.Close()
	q.Close()
	if out.String() != want.String() || q.Dropped() != 0 {
		t.Errorf("%d bytes came out, want %d; %d lines dropped", out.Len(), want.Len(), q.Dropped())
	}
	if q.Write([]byte("late\n")); q.Dropped() != 1 {
		t.Error("a line after the end is not counted as dropped")
	}
}

// A reader that has stopped costs lines, counted, and no time; nor does it hold
// up the end for long.
func TestLogQueue_neverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // nobody reads
		q := newLogQueue(w)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range logLines {
					q.Write([]byte("line\n"))
				}
			})
		}
		all.Wait()
		synctest.Wait()
		// One line is with the writer, the queue is full, the rest is lost.
		if got := q.Dropped(); got < 7*logLines-1 || got > 7*logLines {
			t.Errorf("%d lines dropped of %d, in a queue for %d", got, 8*logLines, logLines)
		}
		q.Close()
		r.Close()
	})
}

func TestLogQueue_cutsLongLines(t *testing.T) {
	var out bytes.Buffer
	q := newLogQueue(&out)
	q.Write(bytes.Repeat([]byte("x"), 1<<20))
	q.Close()
	if out.Len() != maxLogLine || !strings.HasSuffix(out.String(), "x\n") {
		t.Errorf("%d bytes came out, want %d with the line's end", out.Len(), maxLogLine)
	}
}
