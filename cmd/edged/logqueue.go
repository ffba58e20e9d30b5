package main

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// logLines bounds what waits to be written: some 1 MiB at 250 bytes a
	// line, a quarter of a second at 16 000 lines a second.
	logLines = 4096
	// maxLogLine bounds one line; the rest of a longer one is cut.
	maxLogLine = 16 << 10
	// logFlush bounds how long the end of the process waits for its log.
	logFlush = time.Second
)

// A logQueue writes lines behind: who logs never waits for the terminal, the
// journal or a full pipe. A line for which there is no room is dropped and
// counted. Beside a writer that blocks, which stops a server under load, and
// one that buffers without bound, which ends it, that leaves the loss of
// lines, told by edged_log_lines_dropped_total.
//
// Its methods are safe for concurrent use.
type logQueue struct {
	w       io.Writer
	lines   chan []byte
	spare   sync.Pool // of *[]byte, for lines
	dropped atomic.Uint64

	mu     sync.RWMutex // held for reading while a line goes in
	closed bool
	ended  chan struct{}
}

func newLogQueue(w io.Writer) *logQueue {
	q := &logQueue{w: w, lines: make(chan []byte, logLines), ended: make(chan struct{})}
	go func() {
		defer close(q.ended)
		for line := range q.lines {
			if _, err := q.w.Write(line); err != nil {
				q.dropped.Add(1)
			}
			line = line[:0]
			q.spare.Put(&line)
		}
	}()
	return q
}

// Write takes one line. It never fails.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed || len(q.lines) == cap(q.lines) {
		q.dropped.Add(1)
		return len(line), nil
	}
	var b []byte
	if p, ok := q.spare.Get().(*[]byte); ok {
		b = *p
	}
	if len(line) > maxLogLine {
		b = append(append(b, line[:maxLogLine-1]...), '\n')
	} else {
		b = append(b, line...)
	}
	select {
	case q.lines <- b:
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

// Dropped is how many lines were lost.
func (q *logQueue) Dropped() uint64 { return q.dropped.Load() }

// Close writes what waits, for a bounded time. It may be called twice.
func (q *logQueue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.lines)
	}
	q.mu.Unlock()
	select {
	case <-q.ended:
	case <-time.After(logFlush):
	}
}
