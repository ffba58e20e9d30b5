package gossip

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A cluster's key is rotated without a break in three steps, each on all
// members before the next one on any: add the new key, so that all can decrypt
// what it encrypts; use it, so that nobody needs the old one; remove the old
// one. Taken too early, the second step cuts off who does not have the new key
// yet, and the third who still encrypts with the old one.
//
// So a member takes the second and the third step only when every other one
// that is alive has confirmed, at that moment and in a signed answer, that it
// has taken the one before. The other design, key ids in the metadata that
// membership spreads, would need no requests, and would let a step go by news
// that are half a minute old.
//
// The answer to GET /_edged/v1/keys, of up to maxKeysLen bytes:
//
//	{"keys":["9f86d081","2c26b46b"]}    the first one encrypts, all decrypt
const (
	pathKeys    = pathPrefix + "keys"
	maxKeysLen  = 4096
	keysTimeout = 2 * time.Second // for one member's answer
	maxKeyAsks  = 16              // members asked at once
)

// KeyID names a cluster key without giving it away: the first 32 bits of its
// SHA-256 in hex.
func KeyID(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// MemberKeys is which cluster keys one member has.
type MemberKeys struct {
	Member string
	Keys   []string // ids, see [KeyID]; the first one encrypts, all decrypt
	Err    error    // it did not say
}

// uses reports whether the member encrypts with the key.
func (m MemberKeys) uses(id string) bool { return len(m.Keys) > 0 && m.Keys[0] == id }

// KeyStepError is a step of a rotation of keys that was refused, because not
// every member has taken the one before. Nothing was changed.
type KeyStepError struct {
	Step    string   // "use" or "remove"
	Key     string   // id of the key that was to be used or removed
	Members []string // those that have not confirmed, sorted, each with what it said
}

func (e *KeyStepError) Error() string {
	want := "hold it"
	if e.Step == "remove" {
		want = "encrypt with another one"
	}
	return fmt.Sprintf("cluster.key_file: cannot %s key %s before all members are known to %s; not confirmed by %s",
		e.Step, e.Key, want, strings.Join(e.Members, ", "))
}

// SetKeys replaces the cluster's keys: the first one encrypts from now on, all
// decrypt. Adding a key is always possible. Encrypting with another one, and
// removing one, is refused with a [*KeyStepError] while a member that is alive
// has not confirmed that it holds the one, or uses another than the other; the
// members are asked meanwhile, which takes two seconds at most. A member that
// is down is not asked: it comes back with the new keys or not at all. The
// filters' seed is not touched. A member without keys cannot be given some, nor
// the other way round.
func (g *Gossip) SetKeys(keys [][]byte) error {
	if g.keyring == nil || len(keys) == 0 {
		return errors.New("cluster.key_file: a running member cannot change between having keys and having none: restart it")
	}
	for i, k := range keys {
		if len(k) != 32 {
			return fmt.Errorf("cluster.key_file: key %d has %d bytes: want 32", i+1, len(k))
		}
	}
	g.rotating.Lock() // one change at a time
	defer g.rotating.Unlock()
	held := slices.Clone(g.keyring.GetKeys()) // the library changes it in place
	var removed [][]byte
	for _, old := range held {
		if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, old) }) {
			removed = append(removed, old)
		}
	}
	if !bytes.Equal(held[0], keys[0]) || len(removed) > 0 {
		if err := keyStep(held[0], keys[0], removed, g.othersKeys(g.ctx)); err != nil {
			return err
		}
	}
	for _, k := range keys {
		if err := g.keyring.AddKey(k); err != nil {
			return fmt.Errorf("cluster.key_file: %w", err)
		}
	}
	if err := g.keyring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("cluster.key_file: %w", err)
	}
	for _, old := range removed {
		if err := g.keyring.RemoveKey(old); err != nil {
			return fmt.Errorf("cluster.key_file: %w", err)
		}
	}
	return g.auth.use(keys)
}

// keyStep decides whether a member that encrypts with old may encrypt with
// fresh and forget the removed keys, by what the others have said.
func keyStep(old, fresh []byte, removed [][]byte, others []MemberKeys) error {
	refuse := func(step, id string, ok func(MemberKeys) bool) error {
		var missing []string
		for _, m := range others {
			switch {
			case m.Err != nil:
				missing = append(missing, fmt.Sprintf("%s (%v)", m.Member, m.Err))
			case !ok(m):
				missing = append(missing, fmt.Sprintf("%s (has %s)", m.Member, strings.Join(m.Keys, " ")))
			}
		}
		if missing == nil {
			return nil
		}
		return &KeyStepError{Step: step, Key: id, Members: missing}
	}
	if id := KeyID(fresh); !bytes.Equal(old, fresh) {
		if err := refuse("use", id, func(m MemberKeys) bool { return slices.Contains(m.Keys, id) }); err != nil {
			return err
		}
	}
	for _, k := range removed {
		id := KeyID(k)
		if err := refuse("remove", id, func(m MemberKeys) bool { return len(m.Keys) > 0 && !m.uses(id) }); err != nil {
			return err
		}
	}
	return nil
}

// Keys returns which cluster keys each member has that is alive, this one
// included, sorted by name. It is empty without keys.
func (g *Gossip) Keys(ctx context.Context) []MemberKeys {
	if g.keyring == nil {
		return nil
	}
	all := append(g.othersKeys(ctx), MemberKeys{Member: g.cfg.Name, Keys: g.keyIDs()})
	slices.SortFunc(all, func(a, b MemberKeys) int { return strings.Compare(a.Member, b.Member) })
	return all
}

// keyIDs names the keys that this member has.
func (g *Gossip) keyIDs() (ids []string) {
	for _, k := range g.keyring.GetKeys() {
		ids = append(ids, KeyID(k))
	}
	return ids
}

// othersKeys asks every other member that is alive or suspected.
func (g *Gossip) othersKeys(ctx context.Context) []MemberKeys {
	var others []MemberKeys
	var addrs []string
	for _, m := range *g.members.Load() {
		if m.Name != g.cfg.Name && (m.State == StateAlive || m.State == StateSuspect) {
			others = append(others, MemberKeys{Member: m.Name})
			addrs = append(addrs, m.PeerAddr)
		}
	}
	room := make(chan struct{}, maxKeyAsks)
	var wg sync.WaitGroup
	for i := range others {
		room <- struct{}{}
		wg.Go(func() {
			others[i].Keys, others[i].Err = g.askKeys(ctx, addrs[i])
			<-room
		})
	}
	wg.Wait()
	return others
}

// keysAnswer is the answer to GET pathKeys.
type keysAnswer struct {
	Keys []string `json:"keys"`
}

// errNoKeys is an answer that names no key.
var errNoKeys = errors.New("its answer names no key")

func (g *Gossip) askKeys(ctx context.Context, addr string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	b, err := g.call(ctx, http.MethodGet, addr, pathKeys, nil, maxKeysLen)
	if err != nil {
		return nil, err
	}
	var a keysAnswer
	if err := json.Unmarshal(b, &a); err != nil || len(a.Keys) == 0 {
		return nil, errNoKeys
	}
	return a.Keys, nil
}

// serveKeys answers which keys this member has.
func (g *Gossip) serveKeys() (int, []byte) {
	if g.keyring == nil {
		return http.StatusNotFound, []byte("this member has no keys\n")
	}
	b, err := json.Marshal(keysAnswer{g.keyIDs()})
	if err != nil {
		return http.StatusInternalServerError, []byte("keys cannot be named\n")
	}
	return http.StatusOK, b
}
