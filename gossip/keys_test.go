package gossip

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestKeyStep: what each step of a rotation asks of the others.
func TestKeyStep(t *testing.T) {
	k := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	id := func(bs ...byte) (ids []string) {
		for _, b := range bs {
			ids = append(ids, KeyID(k(b)))
		}
		return ids
	}
	for _, tc := range []struct {
		name       string
		old, fresh byte
		removed    []byte
		others     []MemberKeys
		step       string // that is refused
		members    []string
	}{
		{"use, alone", 1, 2, nil, nil, "", nil},
		{"use, all hold it", 1, 2, nil, []MemberKeys{{"b", id(1, 2), nil}, {"c", id(2, 1), nil}}, "", nil},
		{"use, one does not hold it", 1, 2, nil, []MemberKeys{{"b", id(1, 2), nil}, {"c", id(1), nil}}, "use", []string{"c (has "}},
		{"use, one does not answer", 1, 2, nil, []MemberKeys{{"b", nil, errNoKeys}}, "use", []string{"b (" + errNoKeys.Error()}},
		{"remove, all use another", 2, 2, []byte{1}, []MemberKeys{{"b", id(2, 1), nil}, {"c", id(2), nil}}, "", nil},
		{"remove, two still use it", 2, 2, []byte{1}, []MemberKeys{{"b", id(1, 2), nil}, {"c", id(2), nil}, {"d", id(1, 2), nil}}, "remove", []string{"b (has ", "d (has "}},
		{"remove, one does not answer", 2, 2, []byte{1}, []MemberKeys{{"b", nil, errNoKeys}}, "remove", []string{"b ("}},
		{"remove one that was never used", 1, 1, []byte{3}, []MemberKeys{{"b", id(1, 3), nil}}, "", nil},
		{"all in one, alone", 1, 2, []byte{1}, nil, "", nil},
		{"all in one", 1, 2, []byte{1}, []MemberKeys{{"b", id(1), nil}}, "use", []string{"b ("}},
		{"two steps in one", 1, 2, []byte{1}, []MemberKeys{{"b", id(1, 2), nil}}, "remove", []string{"b ("}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var removed [][]byte
			for _, b := range tc.removed {
				removed = append(removed, k(b))
			}
			err := keyStep(k(tc.old), k(tc.fresh), removed, tc.others)
			var refused *KeyStepError
			switch {
			case tc.step == "" && err == nil:
			case !errors.As(err, &refused) || refused.Step != tc.step || len(refused.Members) != len(tc.members):
				t.Fatalf("got %v, want %q refused because of %q", err, tc.step, tc.members)
			}
			for i, want := range tc.members {
				if !strings.HasPrefix(refused.Members[i], want) || !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q", refused.Members[i], want)
				}
			}
		})
	}
}

// TestKeyID_golden: operators compare them across versions.
func TestKeyID_golden(t *testing.T) {
	if id := KeyID(testKey); id != "4bb06f8e" {
		t.Errorf("%s", id)
	}
}

// TestCluster_keyStepsAreConfirmed: a step that would cut a member off is
// refused with its name and changes nothing; once that member has followed it
// is possible.
func TestCluster_keyStepsAreConfirmed(t *testing.T) {
	checkLeaks(t)
	old, fresh := testKey, bytes.Repeat([]byte{9}, 32)
	a := mustStart(t, "a", nil, nil)
	b := mustStart(t, "b", []string{a.Addr()}, nil)
	c := mustStart(t, "c", []string{a.Addr()}, nil)
	nodes := []*testNode{a, b, c}
	joined := func() bool { return allAlive(nodes, 3) }
	eventually(t, 5*time.Second, "three members", joined)
	refused := func(n *testNode, step string, members []string, keys ...[]byte) {
		t.Helper()
		before := n.keyIDs()
		var e *KeyStepError
		if err := n.SetKeys(keys); !errors.As(err, &e) || e.Step != step || len(e.Members) != len(members) {
			t.Fatalf("got %v, want %q refused because of %q", err, step, members)
		}
		for i, m := range members {
			if !strings.HasPrefix(e.Members[i], m+" ") {
				t.Errorf("not confirmed by %q, want %q", e.Members, members)
			}
		}
		if !slices.Equal(n.keyIDs(), before) {
			t.Errorf("refused, and yet the keys are %v", n.keyIDs())
		}
	}
	set := func(n *testNode, keys ...[]byte) {
		t.Helper()
		if err := n.SetKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	refused(a, "use", []string{"b", "c"}, fresh)
	set(a, old, fresh)
	refused(a, "use", []string{"b", "c"}, fresh, old)
	set(b, old, fresh)
	refused(a, "use", []string{"c"}, fresh, old)
	set(c, old, fresh)
	set(a, fresh, old)
	refused(a, "remove", []string{"b", "c"}, fresh)
	set(b, fresh, old)
	refused(b, "remove", []string{"c"}, fresh)
	set(c, fresh, old)
	for _, n := range nodes {
		set(n, fresh)
	}
	for _, m := range a.Keys(t.Context()) {
		if m.Err != nil || !slices.Equal(m.Keys, []string{KeyID(fresh)}) {
			t.Errorf("%+v", m)
		}
	}
	if !joined() {
		t.Error("somebody was lost on the way")
	}
	// One that does not answer cannot confirm; one that left need not.
	c.server.Close()
	set(a, fresh, old)
	set(b, fresh, old)
	refused(a, "use", []string{"c"}, old, fresh)
	if err := c.Leave(2 * time.Second); err != nil {
		t.Error(err)
	}
	eventually(t, 5*time.Second, "c has left", func() bool { return a.stateOf("c") == StateLeft })
	set(a, old, fresh)
}

// TestHandler_keys: ids, never the keys, and only to members.
func TestHandler_keys(t *testing.T) {
	checkLeaks(t)
	a := mustStart(t, "a", nil, nil)
	r := httptest.NewRequest("GET", pathKeys, nil)
	mustAuth(t, testKey).sign(r, nil)
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, r)
	if want := `{"keys":["` + KeyID(testKey) + `"]}`; w.Code != 200 || w.Body.String() != want {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
	w = httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequest("GET", pathKeys, nil))
	if w.Code != 401 {
		t.Errorf("who does not sign is told: %d %s", w.Code, w.Body)
	}
}
