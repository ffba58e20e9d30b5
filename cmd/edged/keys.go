package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"edged/edge/admin"
)

type keysCmd struct {
	adminFlags
}

func (keysCmd) Help() string {
	return `Asks every member that is alive which cluster keys it has, and shows how far a change of the key is. A key is
shown as the first 8 hex digits of its SHA-256; the key itself is never shown or sent.

The key is changed in three steps, each on all members: change cluster.key_file and send SIGHUP.

    1. add      append the new key
    2. use      move the new key to the first line, so that it encrypts
    3. remove   take the old key away

A member takes step 2 only when all others that are alive hold the new key, and step 3 only when none encrypts
with the old one. Else it keeps its keys, logs which members have not confirmed the step before, and sets
edged_config_last_reload_successful to 0: bring those up to date, and send SIGHUP again.

Examples:

    edged keys
    edged keys --admin 10.0.0.7:9901 --token-file /etc/edged/token --json

Exit code: 0 when all members have the same keys in the same order of use, 1 when they differ or one does not answer.`
}

// keysAnswer is the answer to GET /v1/keys.
type keysAnswer struct {
	Members []admin.MemberKeys `json:"members"`
}

// Run shows the members' keys.
func (c *keysCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	var a keysAnswer
	raw, err := client.get(context.Background(), "/v1/keys", nil, &a)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printRaw(p.stdout, raw)
	} else {
		err = printKeys(p.stdout, a.Members)
	}
	if err == nil && !sameKeys(a.Members) {
		err = errReported
	}
	return err
}

// sameKeys reports whether all members encrypt with the same key and hold the
// same ones.
func sameKeys(members []admin.MemberKeys) bool {
	return !slices.ContainsFunc(members, func(m admin.MemberKeys) bool {
		return m.Error != "" || m.Encrypt != members[0].Encrypt || !slices.Equal(sorted(m.Decrypt), sorted(members[0].Decrypt))
	})
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func printKeys(w io.Writer, members []admin.MemberKeys) error {
	if len(members) == 0 {
		_, err := fmt.Fprintln(w, "this cluster has no key: its members speak in clear, on loopback")
		return err
	}
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "MEMBER\tENCRYPTS WITH\tHOLDS")
		for _, m := range members {
			if m.Error != "" {
				fmt.Fprintf(w, "%s\t?\t%s\n", printable(m.Member), printable(m.Error))
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", printable(m.Member), printable(m.Encrypt), printable(strings.Join(m.Decrypt, " ")))
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s\n", keyAdvice(members))
	return err
}

// keyAdvice says which step of a change of the key is possible.
func keyAdvice(members []admin.MemberKeys) string {
	var silent []string
	held := map[string]int{}
	used := map[string]int{}
	for _, m := range members {
		if m.Error != "" {
			silent = append(silent, m.Member)
			continue
		}
		used[m.Encrypt]++
		for _, k := range m.Decrypt {
			held[k]++
		}
	}
	if silent != nil {
		return "No step but adding a key is possible before these answer: " + printable(strings.Join(silent, ", "))
	}
	var use, remove, wait []string
	for k, n := range held {
		switch {
		case n < len(members):
			wait = append(wait, k)
		case used[k] < len(members):
			use = append(use, k)
		}
		if used[k] == 0 {
			remove = append(remove, k)
		}
	}
	var lines []string
	say := func(keys []string, text string) {
		if len(keys) > 0 {
			lines = append(lines, text+" "+printable(strings.Join(sorted(keys), " ")))
		}
	}
	say(wait, "Not held by every member yet, so not to be used:")
	say(use, "Held by every member, may be used:")
	say(remove, "Used by no member, may be removed:")
	if lines == nil {
		return "Every member has the same key."
	}
	return strings.Join(lines, "\n")
}
