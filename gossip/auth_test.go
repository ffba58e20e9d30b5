package gossip

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

func mustAuth(t *testing.T, keys ...[]byte) *authenticator {
	t.Helper()
	a, err := newAuthenticator("a", keys)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAuth_requests(t *testing.T) {
	k1, k2, k3 := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 32)
	nothing := func(*http.Request) {}
	for _, tc := range []struct {
		name   string
		sign   [][]byte
		verify [][]byte
		change func(*http.Request)
		body   string
		later  time.Duration
		want   error
	}{
		{name: "the same key", sign: [][]byte{k1}, verify: [][]byte{k1}, change: nothing},
		{name: "the second of the ring", sign: [][]byte{k1}, verify: [][]byte{k2, k1}, change: nothing},
		{name: "another key", sign: [][]byte{k1}, verify: [][]byte{k2, k3}, change: nothing, want: errBadMac},
		{name: "unsigned", verify: [][]byte{k1}, change: nothing, want: errNoMac},
		{name: "no keys anywhere", change: nothing},
		{name: "another path", sign: [][]byte{k1}, verify: [][]byte{k1}, change: func(r *http.Request) { r.URL.Path = "/other" }, want: errBadMac},
		{name: "another query", sign: [][]byte{k1}, verify: [][]byte{k1}, change: func(r *http.Request) { r.URL.RawQuery = "part=b" }, want: errBadMac},
		{name: "another method", sign: [][]byte{k1}, verify: [][]byte{k1}, change: func(r *http.Request) { r.Method = "GET" }, want: errBadMac},
		{name: "another node", sign: [][]byte{k1}, verify: [][]byte{k1}, change: func(r *http.Request) { r.Header.Set(fieldNode, "b") }, want: errBadMac},
		{name: "another time", sign: [][]byte{k1}, verify: [][]byte{k1}, change: func(r *http.Request) { r.Header.Set(fieldTime, "1") }, want: errBadMac},
		{name: "another body", sign: [][]byte{k1}, verify: [][]byte{k1}, change: nothing, body: "other", want: errBadMac},
		{name: "29 s old", sign: [][]byte{k1}, verify: [][]byte{k1}, change: nothing, later: 29 * time.Second},
		{name: "31 s old", sign: [][]byte{k1}, verify: [][]byte{k1}, change: nothing, later: 31 * time.Second, want: errClock},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := httptest.NewRequest("POST", "/_edged/v1/purge?part=a", nil)
				mustAuth(t, tc.sign...).sign(r, []byte("body"))
				tc.change(r)
				time.Sleep(tc.later)
				body := "body" + tc.body
				if _, err := mustAuth(t, tc.verify...).verify(r, []byte(body)); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			})
		})
	}
}

func TestAuth_refusesReplays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		signer, verifier := mustAuth(t, testKey), mustAuth(t, testKey)
		var sent []*http.Request
		for i := range 100 {
			r := httptest.NewRequest("GET", "/x", nil)
			signer.sign(r, nil)
			if _, err := verifier.verify(r, nil); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			sent = append(sent, r)
			time.Sleep(time.Second)
			for j, old := range sent {
				if _, err := verifier.verify(old, nil); err == nil {
					t.Fatalf("request %d is accepted again after request %d", j, i)
				}
			}
		}
	})
}

func TestAuth_boundsNonces(t *testing.T) {
	a := mustAuth(t, testKey)
	now := time.Now()
	for i := range maxNonces + 1 {
		if err := a.once(now, strconv.Itoa(i)); (err == nil) != (i < maxNonces) {
			t.Fatalf("nonce %d: %v", i, err)
		}
	}
}

func TestAuth_answers(t *testing.T) {
	a := mustAuth(t, testKey)
	r := httptest.NewRequest("GET", "/x", nil)
	a.sign(r, nil)
	k, err := a.verify(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(nonce string, status int, body string) *http.Response {
		h := http.Header{}
		signAnswer(h, k, nonce, 200, []byte("body"))
		return &http.Response{StatusCode: status, Header: h}
	}
	nonce := r.Header.Get(fieldNonce)
	if err := a.verifyAnswer(r, answer(nonce, 200, "body"), []byte("body")); err != nil {
		t.Error(err)
	}
	for name, resp := range map[string]*http.Response{
		"another nonce":  answer(strings.Repeat("0", 32), 200, "body"),
		"another status": answer(nonce, 410, "body"),
		"unsigned":       {StatusCode: 200, Header: http.Header{}},
	} {
		if err := a.verifyAnswer(r, resp, []byte("body")); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := a.verifyAnswer(r, answer(nonce, 200, "body"), []byte("other")); err == nil {
		t.Error("another body is accepted")
	}
}
