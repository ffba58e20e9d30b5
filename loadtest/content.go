package loadtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
)

// MaxBodyBytes bounds the bodies that an [Origin] makes.
const MaxBodyBytes = 1 << 32

// The paths of the test content. Both the origin and the driver derive
// everything from the path alone, so a driver can check the answers of an
// origin in another process.
const (
	keyPrefix    = "/k/"      // /k/{bytes}/{key}: exists, a body of that many bytes
	absentPrefix = "/absent/" // anything under it: 404
)

// KeyPath returns the path of existing key n with a body of the given size.
func KeyPath(n uint64, sizeBytes int64) string {
	b := make([]byte, 0, 40)
	b = append(b, keyPrefix...)
	b = strconv.AppendInt(b, sizeBytes, 10)
	b = append(b, '/')
	b = strconv.AppendUint(b, n, 10)
	return string(b)
}

// AbsentPath returns a path that no origin has.
func AbsentPath(n uint64) string { return absentPrefix + strconv.FormatUint(n, 36) }

// parseKeyPath undoes [KeyPath]; ok is false for every other path.
func parseKeyPath(path string) (n uint64, sizeBytes int64, ok bool) {
	rest, ok := strings.CutPrefix(path, keyPrefix)
	if !ok {
		return 0, 0, false
	}
	size, key, ok := strings.Cut(rest, "/")
	if !ok {
		return 0, 0, false
	}
	sizeBytes, err1 := strconv.ParseInt(size, 10, 64)
	n, err2 := strconv.ParseUint(key, 10, 64)
	if err1 != nil || err2 != nil || sizeBytes < 0 || sizeBytes > MaxBodyBytes || KeyPath(n, sizeBytes) != path {
		return 0, 0, false
	}
	return n, sizeBytes, true
}

// content is the body of a path: pseudo-random bytes that depend on the path
// and the offset only, so that any part of it can be made or checked without
// the rest. Word i, little-endian, is mix64(seed + i*golden), the stream of
// splitmix64 (Steele, Lea, Flood 2014).
type content struct {
	seed uint64
	size int64
}

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio

func contentOf(path string, sizeBytes int64) content {
	h := fnv.New64a()
	io.WriteString(h, path)
	return content{seed: mix64(h.Sum64()), size: sizeBytes}
}

// mix64 is the finaliser of splitmix64: a bijection in which every input bit
// changes every output bit with probability one half.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes the bytes at offset off into p. It does not know the size.
func (c content) fill(p []byte, off int64) {
	i := uint64(off) / 8
	if r := off % 8; r != 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], mix64(c.seed+i*golden))
		p = p[copy(p, w[r:]):]
		i++
	}
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, mix64(c.seed+i*golden))
		p = p[8:]
		i++
	}
	if len(p) > 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], mix64(c.seed+i*golden))
		copy(p, w[:])
	}
}

// reader returns the content as http.ServeContent wants it.
func (c content) reader() io.ReadSeeker { return &contentReader{content: c} }

type contentReader struct {
	content
	off int64
}

func (r *contentReader) Read(p []byte) (int, error) {
	if r.off >= r.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.size-r.off)]
	r.fill(p, r.off)
	r.off += int64(len(p))
	return len(p), nil
}

func (r *contentReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.off
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	r.off = offset
	return offset, nil
}

// errBody is in the errors of check that mean wrong bytes, as opposed to a
// connection that broke.
var errBody = errors.New("wrong body")

// check reads a body to its end and compares every byte. Buf is scratch space
// of at least 16 bytes; half of it holds what was read, half what it should be.
func (c content) check(body io.Reader, buf []byte) error {
	got, want := buf[:len(buf)/2], buf[len(buf)/2:]
	var off int64
	for {
		n, err := body.Read(got)
		if off+int64(n) > c.size {
			return fmt.Errorf("%w: longer than its %d bytes", errBody, c.size)
		}
		c.fill(want[:n], off)
		if !bytes.Equal(got[:n], want[:n]) {
			for i := range n {
				if got[i] != want[i] {
					return fmt.Errorf("%w: byte %d of %d differs", errBody, off+int64(i), c.size)
				}
			}
		}
		off += int64(n)
		switch {
		case err == io.EOF && off < c.size:
			return fmt.Errorf("%w: ends after %d of %d bytes", errBody, off, c.size)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
