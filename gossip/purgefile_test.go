package gossip

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func simRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func fileChangeRecord(seq uint64) fileRecord {
	c := Change{Kind: KindPurge, Stamp: seq, URLs: []string{fmt.Sprint("http://h/", seq)}}
	return fileRecord{record{origin{"n1", 7}, seq, appendChange(nil, &c)}, seq}
}

// The file, cut at every byte, gives back the records that are whole, and goes
// on from there.
func TestLogFile_toleratesTornTails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, logFileName)
	l, _, _, err := openLogFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []fileRecord
	ends := []int64{l.size}
	for seq := range uint64(4) {
		want = append(want, fileChangeRecord(seq+1))
		l.append(want[seq:])
		ends = append(ends, l.size)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		n := 0
		for n < 4 && ends[n+1] <= int64(cut) {
			n++
		}
		l, got, torn, err := openLogFile(dir)
		if err != nil || len(got) != n || n > 0 && !reflect.DeepEqual(got, want[:n]) || int64(cut) >= ends[0] && torn != int64(cut)-ends[n] {
			t.Fatalf("cut at %d: %d records, %d torn, %v; want %d", cut, len(got), torn, err, n)
		}
		l.append(want[3:])
		l.close()
		if l, got, _, err = openLogFile(dir); err != nil || len(got) != n+1 {
			t.Fatalf("cut at %d, and written to: %d records, %v", cut, len(got), err)
		}
		l.close()
	}
	if err := os.WriteFile(path, []byte("something else entirely"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := openLogFile(dir); err == nil {
		t.Error("another file is taken for a log, and would be overwritten")
	}
}

// A log is bounded on disk and in memory: what is dropped leaves its place.
func TestLogFile_isWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	l, _, _, err := openLogFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := newLogCore(logConfig{name: "n1", boot: 7, base: time.Unix(1e9, 0)}, &clock{}, simRand())
	const n = maxChanges + 5000
	for i := range n {
		c.accept(0, []*Change{{Kind: KindPurge, URLs: []string{fmt.Sprintf("http://www.example.com/%0100d", i)}}})
		for _, e := range c.take() {
			if a, ok := e.(applyEffect); ok {
				l.append([]fileRecord{{a.records[0], a.changes[0].Stamp}})
			}
		}
	}
	if !l.overgrown() {
		t.Fatalf("%d bytes and not overgrown", l.size)
	}
	c.expire(0)
	before := l.size
	if err := l.rewrite(c.dump()); err != nil {
		t.Fatal(err)
	}
	if l.overgrown() || l.size >= before {
		t.Errorf("%d bytes, then %d", before, l.size)
	}
	l.append([]fileRecord{fileChangeRecord(n + 1)})
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l, records, torn, err := openLogFile(dir)
	if err != nil || torn != 0 {
		t.Fatal(torn, err)
	}
	defer l.close()
	d := newLogCore(logConfig{name: "n1", boot: 8, base: time.Unix(1e9, 0)}, &clock{}, simRand())
	for _, r := range records {
		d.restore(r.record, r.stamp)
	}
	if s := d.find(origin{"n1", 7}); s == nil || s.head != n+1 || s.floor != 5000 || len(s.held) != maxChanges+1 {
		t.Errorf("%+v", s)
	}
}

// What is written anew has all that lies beyond gaps, however many there are.
func TestLogFile_dumpsAllBeyondGaps(t *testing.T) {
	base := time.Unix(1e9, 0)
	c := newLogCore(logConfig{name: "a", boot: 1, base: base}, &clock{}, simRand())
	const n = 3 * maxAckRanges
	for i := range uint64(n) {
		c.takeRecords(0, []record{{origin{"b", 2}, 2 * (i + 1), appendChange(nil, &Change{Kind: KindPurge, All: true, Stamp: wallStamp(base)})}})
	}
	if got := len(c.dump()); got != n {
		t.Errorf("%d records, want %d", got, n)
	}
}

// A member that was away for longer than the others' log reaches learns that
// it has missed changes, and what there is after them.
func TestLog_cut(t *testing.T) {
	base := time.Unix(1e9, 0)
	a := newLogCore(logConfig{name: "a", boot: 1, base: base}, &clock{}, simRand())
	b := newLogCore(logConfig{name: "b", boot: 2, base: base}, &clock{}, simRand())
	purge := func(now time.Duration) { a.accept(now, []*Change{{Kind: KindPurge, All: true}}) }
	pull := func(now time.Duration) (applied int, cuts int) {
		if p := b.peer("a"); p.pulling == 0 {
			p.doubt, p.pullAt = true, now
			b.tick(now)
		}
		for _, e := range b.take() {
			if e, ok := e.(pullEffect); ok {
				m, err := decodeLogMessage(e.payload, maxBodyLen)
				if err != nil {
					t.Fatal(err)
				}
				b.pulled(now, e, a.catchUp(now, m), nil)
			}
		}
		for _, e := range b.take() {
			switch e := e.(type) {
			case applyEffect:
				applied += len(e.records)
			case cutEffect:
				cuts++
			}
		}
		if b.state != SyncSynced {
			t.Errorf("after a pull b is %s", b.state)
		}
		return applied, cuts
	}
	b.peerUp(0, "a", 1)
	for range 3 {
		purge(0)
	}
	if applied, cuts := pull(time.Second); applied != 3 || cuts != 0 {
		t.Errorf("%d applied, %d times cut", applied, cuts)
	}
	purge(2 * time.Second)
	late := 2*time.Second + keepChanges + time.Minute
	a.tick(late)
	purge(late)
	if applied, cuts := pull(late); applied != 1 || cuts != 1 {
		t.Errorf("%d applied, %d times cut, after one that nobody holds any more", applied, cuts)
	}
	if applied, cuts := pull(late + time.Second); applied != 0 || cuts != 0 {
		t.Errorf("%d applied, %d times cut, when nothing has happened", applied, cuts)
	}
	// Away for so long that the whole sequence may be forgotten.
	b.peerDown(late, "a", false)
	away := late + keepOrigin
	b.peerUp(away, "a", 1)
	if _, cuts := pull(away); cuts != 1 {
		t.Errorf("%d times cut after a day", cuts)
	}
}

// A node is isolated when it has reached nobody for half a minute, and others
// are expected.
func TestLog_isolation(t *testing.T) {
	c := newLogCore(logConfig{name: "a", boot: 1, base: time.Unix(1e9, 0)}, &clock{}, simRand())
	at := func(now time.Duration, want SyncState) {
		t.Helper()
		for at := max(c.tickedAt, now-time.Minute); at < now; at += time.Second {
			c.tick(at)
		}
		c.tick(now)
		if c.state != want {
			t.Errorf("at %v it is %s, want %s", now, c.state, want)
		}
	}
	at(time.Hour, SyncSynced) // it was never anything but alone
	now := time.Hour
	c.peerUp(now, "b", 2)
	at(now, SyncSynced)
	c.peerDown(now, "b", false)
	at(now+isolatedAfter-time.Second, SyncSynced)
	at(now+isolatedAfter, SyncIsolated)
	at(now+time.Minute, SyncIsolated)
	c.peerUp(now+time.Minute, "b", 2)
	at(now+time.Minute, SyncSyncing)
	_, hash := c.vector(now)
	c.receive(now+time.Minute, logMessage{kind: frameDigest, from: "b", boot: 2, hash: hash})
	at(now+time.Minute, SyncSynced)
	c.peerDown(now+time.Minute, "b", true)
	at(now+time.Hour, SyncSynced) // it said that it goes
}

// A second process is kept away from the file, by its name and after it was
// written anew too.
func TestLogFile_isOneProcesss(t *testing.T) {
	dir := t.TempDir()
	l, _, _, err := openLogFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, _, err := openLogFile(dir); err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("opened twice: %v", err)
		}
		if err := l.rewrite(nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if l, _, _, err = openLogFile(dir); err != nil {
		t.Fatal(err)
	}
	l.close()
}

// A file that somebody removes, or that could not be written, is written anew.
// (Seen: what was purged after an rm was acknowledged and gone with the process.)
func TestLogFile_comesBack(t *testing.T) {
	for name, harm := range map[string]func(l *logFile, dir string){
		"removed": func(_ *logFile, dir string) { os.RemoveAll(dir) },
		"replaced": func(_ *logFile, dir string) {
			os.Remove(filepath.Join(dir, logFileName))
			os.WriteFile(filepath.Join(dir, logFileName), nil, 0o600)
		},
		"disk full":  func(l *logFile, _ string) { l.err = syscall.ENOSPC },
		"unreadable": func(l *logFile, _ string) { l.f.Close() },
	} {
		dir := filepath.Join(t.TempDir(), "state")
		l, _, _, err := openLogFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		l.append([]fileRecord{fileChangeRecord(1)})
		harm(l, dir)
		if !l.overgrown() {
			t.Errorf("%s: nothing is to be done", name)
		}
		if err := l.wait(); err == nil {
			t.Errorf("%s: it is called durable", name)
		}
		if err := l.rewrite([]fileRecord{fileChangeRecord(1)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l.append([]fileRecord{fileChangeRecord(2)})
		if l.overgrown() {
			t.Errorf("%s: it is to be written anew again: %v", name, l.err)
		}
		if err := l.close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l, records, torn, err := openLogFile(dir)
		if err != nil || torn != 0 || len(records) != 2 {
			t.Errorf("%s: read back %d records, %d bytes torn, %v", name, len(records), torn, err)
			continue
		}
		l.close()
	}
}
