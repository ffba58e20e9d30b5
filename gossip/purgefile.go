package gossip

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// The log on disk is one file, purge.log, to which is only appended:
//
//	0  "edged-log-1\n"
//	each: length u32, crc32c u32 of the rest, the rest:
//	  kind u8: 1 a change, 2 all up to seq is not held | name | boot u64 | seq u64 | stamp u64 | the change
//
// What follows the first record that is torn or does not have its sum is not
// read, and cut off: those are what a crash left of the last writes, none of
// which was acknowledged. When half of a file above 1 MiB is out of date, it is
// written anew beside itself and renamed.
//
// A database would do the same work for a thousand times the code; a file for
// each origin would take a directory's sync for each restart of a member.
const (
	logFileName   = "purge.log"
	logFileMagic  = "edged-log-1\n"
	fileChange    = 1
	fileFloor     = 2
	fileRecordMax = maxChangeLen + 128
	fileSlack     = 1 << 20
)

// fileRecord is one record of the file; enc is nil for a floor.
type fileRecord struct {
	record
	stamp uint64
}

func appendFileRecord(b []byte, r fileRecord) []byte {
	start := len(b)
	b = append(b, make([]byte, 8)...)
	kind := byte(fileChange)
	if r.enc == nil {
		kind = fileFloor
	}
	b = binary.BigEndian.AppendUint64(appendName(append(b, kind), r.name), r.boot)
	b = binary.BigEndian.AppendUint64(b, r.seq)
	b = binary.BigEndian.AppendUint64(b, r.stamp)
	b = append(b, r.enc...)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-8))
	binary.BigEndian.PutUint32(b[start+4:], crc32.Checksum(b[start+8:], castagnoli))
	return b
}

// errTorn is the end of what can be read of the file.
var errTorn = errors.New("torn record")

// readFileRecord reads a record. io.EOF is the end; errTorn says that what
// follows is not to be read.
func readFileRecord(in io.Reader) (fileRecord, int, error) {
	var head [8]byte
	if n, err := io.ReadFull(in, head[:]); err != nil {
		if n == 0 && err == io.EOF {
			return fileRecord{}, 0, io.EOF
		}
		return fileRecord{}, 0, errTorn
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > fileRecordMax {
		return fileRecord{}, 0, errTorn
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil || crc32.Checksum(b, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return fileRecord{}, 0, errTorn
	}
	r := reader{b: b}
	kind := r.u8()
	rec := fileRecord{record: record{origin: origin{r.name(), r.u64()}, seq: r.u64()}, stamp: r.u64()}
	switch {
	case r.bad || rec.seq == 0:
		return fileRecord{}, 0, errTorn
	case kind == fileChange:
		if _, err := decodeChange(r.b); err != nil {
			return fileRecord{}, 0, errTorn
		}
		rec.enc = r.b
	case kind != fileFloor:
		return fileRecord{}, 0, errTorn // of a later version: it would not be kept
	}
	return rec, 8 + int(n), nil
}

// logFile is the file. Its methods are safe for concurrent use; append and
// rewrite are called one at a time.
type logFile struct {
	dir string

	mu      sync.Mutex
	cond    *sync.Cond
	f       *os.File
	written uint64 // records, since the start
	synced  uint64
	size    int64
	live    int64 // size when it was written anew last
	err     error // nothing is durable until the file was written anew
	stopped bool  // syncLoop ends
	closed  bool
}

// openLogFile opens or makes the file in dir and returns what it holds, and
// how many bytes were cut off.
func openLogFile(dir string) (l *logFile, records []fileRecord, torn int64, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, 0, err
	}
	path := filepath.Join(dir, logFileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	if err := lock(f); err != nil {
		return nil, nil, 0, err
	}
	l = &logFile{dir: dir, f: f}
	l.cond = sync.NewCond(&l.mu)
	in := bufio.NewReaderSize(f, 1<<16)
	magic := make([]byte, len(logFileMagic))
	n, rerr := io.ReadFull(in, magic)
	switch {
	case rerr != nil && string(magic[:n]) == logFileMagic[:n]:
		// New, or torn at its very beginning.
		if err := f.Truncate(0); err != nil {
			return nil, nil, 0, err
		}
		if _, err := f.WriteAt([]byte(logFileMagic), 0); err != nil {
			return nil, nil, 0, err
		}
		if err := errors.Join(f.Sync(), syncDir(dir)); err != nil {
			return nil, nil, 0, err
		}
		l.size = int64(len(logFileMagic))
		l.live = l.size
		return l, nil, 0, seekEnd(f)
	case string(magic) != logFileMagic:
		return nil, nil, 0, fmt.Errorf("%s is not a log of edged", path)
	}
	l.size = int64(len(logFileMagic))
	for {
		r, n, rerr := readFileRecord(in)
		if rerr != nil {
			break
		}
		records = append(records, r)
		l.size += int64(n)
	}
	l.live = l.size
	if torn = info.Size() - l.size; torn > 0 {
		if err := errors.Join(f.Truncate(l.size), f.Sync()); err != nil {
			return nil, nil, 0, err
		}
	}
	return l, records, torn, seekEnd(f)
}

// lock keeps other processes away from the file until it is closed.
func lock(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	if err := conn.Control(func(fd uintptr) { locked = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) }); err != nil {
		return err
	}
	if errors.Is(locked, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%s is in use by another process: give each node a directory of its own", f.Name())
	}
	return locked
}

func seekEnd(f *os.File) error {
	_, err := f.Seek(0, io.SeekEnd)
	return err
}

// syncDir makes a name in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// append writes records, which are not durable before wait or sync.
func (l *logFile) append(records []fileRecord) {
	var b []byte
	for _, r := range records {
		b = appendFileRecord(b, r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.closed {
		return
	}
	n, err := l.f.Write(b)
	l.size += int64(n)
	l.written += uint64(len(records))
	l.err = err
	l.cond.Broadcast()
}

// wait returns when all that was appended before is durable, or can't be.
func (l *logFile) wait() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := l.written
	for l.synced < want && l.err == nil && !l.stopped {
		l.cond.Wait()
	}
	return l.err
}

// syncLoop makes durable what was written, again and again, until stop: all
// that came during one sync share the next.
func (l *logFile) syncLoop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.stopped {
		if l.synced == l.written || l.err != nil {
			l.cond.Wait()
			continue
		}
		f, upTo := l.f, l.written
		l.mu.Unlock()
		err := f.Sync()
		l.mu.Lock()
		if f != l.f {
			continue // written anew meanwhile, and synced
		}
		if err != nil && l.err == nil {
			l.err = err
		}
		l.synced = max(l.synced, upTo)
		l.cond.Broadcast()
	}
}

// overgrown reports whether the file is to be written anew: because most of it
// may be out of date, or it is not what it should be, by a full disk, say, or
// because somebody has removed it.
func (l *logFile) overgrown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.err == nil {
		l.err = l.removedLocked()
	}
	return l.err != nil || l.size > 2*l.live+fileSlack
}

// removedLocked returns an error when the name is another file's now, or none's.
func (l *logFile) removedLocked() error {
	mine, err := l.f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(filepath.Join(l.dir, logFileName))
	if err != nil {
		return err
	}
	if !os.SameFile(mine, named) {
		return fmt.Errorf("%s is another file now", l.f.Name())
	}
	return nil
}

// rewrite replaces the file by one that holds these records alone, which are
// all: what could not be written before is made up for.
func (l *logFile) rewrite(records []fileRecord) (err error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(l.dir, logFileName)
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := lock(f); err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<16)
	out.WriteString(logFileMagic)
	size := int64(len(logFileMagic))
	for _, r := range records {
		b := appendFileRecord(nil, r)
		size += int64(len(b))
		out.Write(b)
	}
	if err := errors.Join(out.Flush(), f.Sync()); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(path+".new", path), syncDir(l.dir)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.Close()
	l.f, l.size, l.live, l.err = f, size, size, nil
	l.synced = l.written
	l.cond.Broadcast()
	return nil
}

// stop ends syncLoop and wait; close makes up for it.
func (l *logFile) stop() {
	l.mu.Lock()
	l.stopped = true
	l.cond.Broadcast()
	l.mu.Unlock()
}

// close makes what was written durable and closes the file.
func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.cond.Broadcast()
	return errors.Join(l.f.Sync(), l.f.Close())
}
