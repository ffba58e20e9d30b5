package negative

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxPathLine bounds a line of a catalog's source, in bytes.
const maxPathLine = 16 << 10

// errCut is the end of a source that may have lost its end.
var errCut = errors.New("the last line has no line feed, so the list may be cut short: end it with one, or send it with gzip or a Content-Length")

// readPaths calls add for each path of a catalog's source, in gzip or plain:
// one to a line, as it is ("/a/b") or as JSON with a member path
// ({"path":"/a/b"}; other members are ignored). A query or fragment is cut
// off. Empty lines and those that begin with # are skipped. The path is only
// valid during the call.
//
// whole says that the end of r is known to be the end of the source; else a
// plain list must end with a line feed.
func readPaths(r io.Reader, whole bool, add func(path []byte) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	if magic, err := br.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		zr, err := gzip.NewReader(br)
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		defer zr.Close()
		// Its trailer carries length and checksum.
		whole = true
		br = bufio.NewReaderSize(zr, 64<<10)
	}
	for n := 1; ; n++ {
		line, err := br.ReadSlice('\n')
		last := err == io.EOF
		if err != nil && !last && err != bufio.ErrBufferFull {
			return fmt.Errorf("after line %d: %w", n-1, err)
		}
		if err == bufio.ErrBufferFull || len(line) > maxPathLine {
			return fmt.Errorf("line %d is longer than %d bytes", n, maxPathLine)
		}
		if last && len(line) > 0 && !whole {
			return errCut
		}
		path, err := pathOf(bytes.TrimRight(line, "\r\n"))
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if path != nil {
			if err := add(path); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		if last {
			return nil
		}
	}
}

// pathOf returns the path on one line, nil when there is none.
func pathOf(line []byte) ([]byte, error) {
	if len(line) == 0 || line[0] == '#' {
		return nil, nil
	}
	if line[0] == '{' {
		var err error
		if line, err = pathOfObject(line); err != nil {
			return nil, err
		}
	}
	if len(line) == 0 || line[0] != '/' {
		return nil, fmt.Errorf(`%.60q is not a path: want one that begins with /, or {"path":"/..."}`, line)
	}
	if i := bytes.IndexAny(line, "?#"); i >= 0 {
		line = line[:i]
	}
	return line, nil
}

// pathOfObject returns the member path of a JSON object. An object of nothing
// else, with no escape in it, is read without the decoder, which takes ten
// times as long.
func pathOfObject(line []byte) ([]byte, error) {
	if s, ok := bytes.CutPrefix(line, []byte(`{"path":"`)); ok {
		if s, ok := bytes.CutSuffix(s, []byte(`"}`)); ok && plain(s) {
			return s, nil
		}
	}
	var o struct {
		Path *string `json:"path"`
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return nil, err
	}
	if o.Path == nil {
		return nil, errors.New(`the object has no "path"`)
	}
	return []byte(*o.Path), nil
}

// plain reports whether a JSON string stands for itself.
func plain(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c >= 0x80 || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
