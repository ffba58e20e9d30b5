package main

import (
	"strings"
	"testing"

	"edged/edge/admin"
)

// TestKeys: the table and the next step, through a change of the key.
func TestKeys(t *testing.T) {
	m := func(name string, keys ...string) admin.MemberKeys {
		return admin.MemberKeys{Member: name, Encrypt: keys[0], Decrypt: keys}
	}
	for _, tc := range []struct {
		name    string
		members []admin.MemberKeys
		code    int
		want    []string
	}{
		{"no key", []admin.MemberKeys{}, exitOK, []string{"no key"}},
		{"one key", []admin.MemberKeys{m("a", "old"), m("b", "old")}, exitOK, []string{"Every member has the same key."}},
		{"added on one", []admin.MemberKeys{m("a", "old", "new"), m("b", "old")}, exitFailure, []string{"not to be used: new", "a       old            old new"}},
		{"added on all", []admin.MemberKeys{m("a", "old", "new"), m("b", "old", "new")}, exitOK, []string{"may be used: new", "may be removed: new"}},
		{"used by one", []admin.MemberKeys{m("a", "new", "old"), m("b", "old", "new")}, exitFailure, []string{"may be used: new old"}},
		{"used by all", []admin.MemberKeys{m("a", "new", "old"), m("b", "new", "old")}, exitOK, []string{"may be removed: old", "may be used: old"}},
		{"removed from one", []admin.MemberKeys{m("a", "new"), m("b", "new", "old")}, exitFailure, []string{"not to be used: old", "may be removed: old"}},
		{"one is silent", []admin.MemberKeys{m("a", "old", "new"), {Member: "b\x1b[2J", Error: "no\x1banswer"}}, exitFailure,
			[]string{"No step but adding", "?              no"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := stubAdmin(t, "/v1/keys", 200, keysAnswer{tc.members})
			got := command(t, "", "keys", "--admin", s.URL)
			if got.code != tc.code {
				t.Errorf("exit code %d, want %d: %s", got.code, tc.code, got.errOut)
			}
			for _, want := range tc.want {
				if !strings.Contains(got.out, want) {
					t.Errorf("want %q in:\n%s", want, got.out)
				}
			}
			if strings.Contains(got.out, "\x1b") {
				t.Errorf("a member can write to the terminal:\n%q", got.out)
			}
		})
	}
	s := stubAdmin(t, "/v1/keys", 200, `{"members":[]}`)
	if got := command(t, "", "keys", "--admin", s.URL, "--json"); got.code != exitOK || !strings.Contains(got.out, `"members": []`) {
		t.Errorf("as JSON: %+v", got)
	}
}
