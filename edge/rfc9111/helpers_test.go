package rfc9111

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// epoch is the now of most tests: whole seconds, as Date has them.
var epoch = time.Date(2026, time.March, 3, 12, 0, 0, 0, time.UTC)

// at is an HTTP-date d after epoch.
func at(d time.Duration) string { return epoch.Add(d).Format(http.TimeFormat) }

// head makes a header from lines "Name: value".
func head(lines ...string) http.Header {
	h := http.Header{}
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ":")
		if !ok {
			panic("no field line: " + l)
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}

// got is a GET and its response, received without delay at epoch.
func got(status int, lines ...string) Exchange {
	return Exchange{
		Method: http.MethodGet, URL: "http://www.example.com/p", ReqHeader: http.Header{},
		Status: status, Header: head(lines...),
		RequestTime: epoch, ResponseTime: epoch,
	}
}

func allocates(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s allocates %v times", what, n)
	}
}
