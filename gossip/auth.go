package gossip

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Requests between peers are authenticated by fields of their own, so that
// they pass through anything that speaks HTTP:
//
//	Edged-Node   the sender's name
//	Edged-Time   its clock, Unix time in milliseconds
//	Edged-Nonce  32 hex digits, never used twice
//	Edged-Mac    hex HMAC-SHA256 of "edged-request-1", method, path with query,
//	             node, time, nonce and the hex SHA-256 of the body, joined by newlines
//
// and so is the answer, by Edged-Mac over "edged-answer-1", the request's
// nonce, the status and the hex SHA-256 of the body. The key comes from the
// cluster key by HKDF-SHA256 without salt and with the info below.
const (
	fieldNode  = "Edged-Node"
	fieldTime  = "Edged-Time"
	fieldNonce = "Edged-Nonce"
	fieldMac   = "Edged-Mac"

	hkdfInfo  = "edged-peer-http-v1"
	clockSkew = 30 * time.Second // between two members' clocks, at most
	maxNonces = 1 << 16          // seen in each half of the window
)

// Why a request was refused; also the label of a counter.
var (
	errNoMac     = errors.New("not_signed")
	errBadMac    = errors.New("wrong_key")
	errClock     = errors.New("clock")
	errReplayed  = errors.New("replayed")
	errCrowded   = errors.New("crowded")
	errBadAnswer = errors.New("the answer is not signed by the cluster key")
)

// Refusals lists all reasons in Stats.Refused.
func Refusals() []string {
	return append([]string{errNoMac.Error(), errBadMac.Error(), errClock.Error(), errReplayed.Error(), errCrowded.Error()}, identityRefusals()...)
}

// authenticator signs and verifies. Without keys it does neither: then all
// addresses are loopback.
type authenticator struct {
	node string
	keys atomic.Pointer[[][]byte] // derived; the first one signs

	mu      sync.Mutex
	seen    map[string]struct{}
	older   map[string]struct{}
	rotated time.Time
}

// newAuthenticator returns one for the cluster's keys.
func newAuthenticator(node string, keys [][]byte) (*authenticator, error) {
	a := &authenticator{node: node, seen: map[string]struct{}{}, older: map[string]struct{}{}}
	return a, a.use(keys)
}

// use replaces the keys.
func (a *authenticator) use(keys [][]byte) error {
	var derived [][]byte
	for _, k := range keys {
		d, err := hkdf.Key(sha256.New, k, nil, hkdfInfo, sha256.Size)
		if err != nil {
			return fmt.Errorf("derive the key of peer requests: %w", err)
		}
		derived = append(derived, d)
	}
	a.keys.Store(&derived)
	return nil
}

func mac(key []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, key)
	for i, p := range parts {
		if i > 0 {
			h.Write([]byte{'\n'})
		}
		h.Write([]byte(p))
	}
	return h.Sum(nil)
}

func bodySum(body []byte) string {
	s := sha256.Sum256(body)
	return hex.EncodeToString(s[:])
}

// sign adds the fields to a request with that body.
func (a *authenticator) sign(r *http.Request, body []byte) {
	r.Header.Set(fieldNode, a.node)
	keys := *a.keys.Load()
	if len(keys) == 0 {
		return
	}
	var nonce [16]byte
	rand.Read(nonce[:])
	at := strconv.FormatInt(time.Now().UnixMilli(), 10)
	n := hex.EncodeToString(nonce[:])
	r.Header.Set(fieldTime, at)
	r.Header.Set(fieldNonce, n)
	r.Header.Set(fieldMac, hex.EncodeToString(mac(keys[0], "edged-request-1", r.Method, r.URL.RequestURI(), a.node, at, n, bodySum(body))))
}

// verify returns the key that a request with that body was signed with; none
// without keys.
func (a *authenticator) verify(r *http.Request, body []byte) ([]byte, error) {
	keys := *a.keys.Load()
	if len(keys) == 0 {
		return nil, nil
	}
	got, err := hex.DecodeString(r.Header.Get(fieldMac))
	nonce := r.Header.Get(fieldNonce)
	if err != nil || len(got) != sha256.Size || len(nonce) != 32 {
		return nil, errNoMac
	}
	var key []byte
	at := r.Header.Get(fieldTime)
	sum := bodySum(body)
	for _, k := range keys {
		if hmac.Equal(got, mac(k, "edged-request-1", r.Method, r.URL.RequestURI(), r.Header.Get(fieldNode), at, nonce, sum)) {
			key = k
		}
	}
	if key == nil {
		return nil, errBadMac
	}
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return nil, errNoMac
	}
	now := time.Now()
	if d := now.Sub(time.UnixMilli(ms)); d > clockSkew || d < -clockSkew {
		return nil, errClock
	}
	return key, a.once(now, nonce)
}

// once refuses a nonce that was seen. Each of two halves holds those of one
// window; a request is refused by its time before its nonce is forgotten.
func (a *authenticator) once(now time.Time, nonce string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.rotated) > 2*clockSkew {
		if now.Sub(a.rotated) > 4*clockSkew {
			clear(a.seen)
		}
		a.older, a.seen = a.seen, map[string]struct{}{}
		a.rotated = now
	}
	_, seen := a.seen[nonce]
	_, older := a.older[nonce]
	switch {
	case seen || older:
		return errReplayed
	case len(a.seen) >= maxNonces:
		return errCrowded
	}
	a.seen[nonce] = struct{}{}
	return nil
}

// signAnswer adds the field to an answer to a request that key has signed.
func signAnswer(h http.Header, key []byte, nonce string, status int, body []byte) {
	if key != nil {
		h.Set(fieldMac, hex.EncodeToString(mac(key, "edged-answer-1", nonce, strconv.Itoa(status), bodySum(body))))
	}
}

// verifyAnswer checks the answer to a request that sign has signed.
func (a *authenticator) verifyAnswer(r *http.Request, resp *http.Response, body []byte) error {
	keys := *a.keys.Load()
	if len(keys) == 0 {
		return nil
	}
	got, err := hex.DecodeString(resp.Header.Get(fieldMac))
	if err != nil {
		return errBadAnswer
	}
	for _, k := range keys {
		if hmac.Equal(got, mac(k, "edged-answer-1", r.Header.Get(fieldNonce), strconv.Itoa(resp.StatusCode), bodySum(body))) {
			return nil
		}
	}
	return errBadAnswer
}
