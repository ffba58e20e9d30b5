package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"edged/edge/admin"
)

type purgeCmd struct {
	URLs     []string `arg:"" optional:"" name:"URL" help:"URLs to purge, as clients ask for them."`
	URL      []string `sep:"none" placeholder:"URL" help:"The same as an argument; may be repeated."`
	Tags     []string `name:"tag" sep:"none" placeholder:"TAG" help:"Everything with this tag (Surrogate-Key, Cache-Tag, xkey, Cache-Groups); may be repeated."`
	Prefixes []string `name:"prefix" sep:"none" placeholder:"URL" help:"Everything whose URL begins so; may be repeated."`
	Hosts    []string `name:"host" sep:"none" placeholder:"HOST" help:"Everything of this host; may be repeated."`
	All      bool     `help:"Everything."`
	Soft     bool     `help:"Make it stale rather than remove it: the next request validates it."`
	Deleted  bool     `help:"The URLs are gone at the origin: they are absent from now on, for as long as negative.ttl says."`
	Wait     string   `enum:"all,none" default:"all" help:"Whose acknowledgement to wait for: all or none (${default})."`
	adminFlags
}

func (purgeCmd) Help() string {
	return `Purges on every member of the cluster, and forgets remembered absences likewise.

Shows each member as it acknowledges, and on a terminal who is waited for.

Examples:

    edged purge http://www.example.com/a.css
    edged purge --tag product-42 --tag prices --soft
    edged purge --deleted http://www.example.com/old.html
    edged purge --prefix http://www.example.com/static/ --wait none

Exit code: 0 when every member has acknowledged (or --wait none), 1 when one has not, 2 for wrong usage.`
}

// Run purges, and tells which members have not acknowledged.
func (c *purgeCmd) Run(p *process) error {
	req := admin.PurgeRequest{
		URLs:     slices.Concat(c.URLs, c.URL),
		Tags:     c.Tags,
		Prefixes: c.Prefixes,
		Hosts:    c.Hosts,
		All:      c.All,
		Soft:     c.Soft,
		Wait:     c.Wait,
	}
	if c.Deleted {
		req.Reason = "deleted"
	}
	if len(req.URLs)+len(req.Tags)+len(req.Prefixes)+len(req.Hosts) == 0 && !req.All {
		return usagef("nothing to purge: want URLs, --tag, --prefix, --host or --all")
	}
	for _, u := range slices.Concat(req.URLs, req.Prefixes) {
		if strings.HasSuffix(u, "*") {
			fmt.Fprintf(p.stderr, "edged: in %s the * is taken as it stands: --prefix %s purges all that begins so\n", printable(u), printable(strings.TrimRight(u, "*")))
		}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if c.JSON || c.Wait == "none" {
		var res admin.PurgeResult
		raw, err := client.post(context.Background(), "/v1/purge", req, &res)
		if err != nil {
			return asUsage(err)
		}
		if c.JSON {
			err = printRaw(p.stdout, raw)
		} else {
			v := purgeView{out: p.stdout}
			v.result(res)
			err = v.end()
		}
		if err != nil || c.Wait == "none" {
			return err
		}
		return unacknowledged(res)
	}
	v := purgeView{out: p.stdout}
	if isTerminal(p.stderr) {
		v.live = p.stderr
	}
	err = client.postLines(context.Background(), "/v1/purge", req, func(line json.RawMessage) error {
		var step struct { // a result, a member's state or an error
			admin.PurgeResult
			admin.PurgeNode
			Error string `json:"error"`
		}
		if err := client.decode(line, &step); err != nil {
			return err
		}
		switch {
		case step.Error != "":
			return errors.New(printable(step.Error))
		case step.Name != "":
			v.node(step.PurgeNode)
		default:
			v.result(step.PurgeResult)
		}
		return nil
	})
	// What was seen is shown whatever happened after it.
	if endErr := v.end(); err == nil {
		err = endErr
	}
	switch {
	case err != nil:
		return asUsage(err)
	case v.res.ID == "":
		return fmt.Errorf("the answer of %s does not say what became of the purge", client.base.Host)
	}
	return unacknowledged(v.res)
}

// unacknowledged is the error of a purge that some members have not
// acknowledged.
func unacknowledged(res admin.PurgeResult) error {
	if res.Acked >= res.Members && len(res.Missing) == 0 {
		return nil
	}
	who := "it was"
	if len(res.Missing) > 1 {
		who = "they were"
	}
	return fmt.Errorf("no acknowledgement from %s: %s not reached and may still serve what was purged", printable(strings.Join(res.Missing, ", ")), who)
}

// purgeView shows how a purge goes on: a line for each member as it comes and
// one at the end; on a terminal meanwhile who is waited for, in a line that is
// overwritten.
type purgeView struct {
	out  io.Writer
	live io.Writer // the terminal; nil: there is none

	res   admin.PurgeResult // the last one
	shown map[string]string // the state that a member was shown in
	err   error
}

// result takes a result. What it says of the members is shown at the end,
// unless it was shown before.
func (v *purgeView) result(res admin.PurgeResult) {
	v.res = res
	v.draw()
}

// node takes a member's new state.
func (v *purgeView) node(n admin.PurgeNode) {
	if i := slices.IndexFunc(v.res.Nodes, func(m admin.PurgeNode) bool { return m.Name == n.Name }); i >= 0 {
		if n.State == "applied" && v.res.Nodes[i].State != n.State {
			v.res.Acked++
			v.res.Missing = slices.DeleteFunc(v.res.Missing, func(m string) bool { return m == n.Name })
		}
		v.res.Nodes[i] = n
	}
	v.line(n)
	v.draw()
}

// line shows a member's state, once.
func (v *purgeView) line(n admin.PurgeNode) {
	if v.shown[n.Name] == n.State {
		return
	}
	if v.shown == nil {
		v.shown = map[string]string{}
	}
	v.shown[n.Name] = n.State
	after := ""
	if n.After > 0 {
		after = fmt.Sprintf(" after %.0f ms", n.After*1000)
	}
	v.clear()
	v.print("  %s: %s%s\n", printable(n.Name), n.State, after)
}

func (v *purgeView) print(format string, args ...any) {
	if _, err := fmt.Fprintf(v.out, format, args...); v.err == nil {
		v.err = err
	}
}

// draw shows who is waited for.
func (v *purgeView) draw() {
	if v.live == nil {
		return
	}
	const few = 3
	var waiting []string
	for _, n := range v.res.Nodes {
		if n.State == "waiting" {
			waiting = append(waiting, printable(n.Name))
		}
	}
	if len(waiting) == 0 {
		v.clear()
		return
	}
	more := ""
	if n := len(waiting) - few; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	fmt.Fprintf(v.live, "\r\x1b[K%d of %d members have acknowledged, waiting for %s%s", v.res.Acked, v.res.Members, strings.Join(waiting[:min(len(waiting), few)], ", "), more)
}

// clear takes that line away.
func (v *purgeView) clear() {
	if v.live != nil {
		fmt.Fprint(v.live, "\r\x1b[K")
	}
}

// end shows what is left to show.
func (v *purgeView) end() error {
	v.clear()
	for _, n := range v.res.Nodes {
		v.line(n)
	}
	if v.res.ID != "" {
		stored := ""
		if n := v.res.Stored; n != nil {
			stored = fmt.Sprintf("; the node asked had %d stored responses of it", *n)
			if v.res.StoredMore {
				stored = fmt.Sprintf("; the node asked had %d stored responses of it, or more", *n)
			}
		}
		v.print("purge %s: %d of %d members have acknowledged%s\n", printable(v.res.ID), v.res.Acked, v.res.Members, stored)
		if v.res.Warning != "" {
			v.print("  but %s\n", printable(v.res.Warning))
		}
	}
	return v.err
}

// isTerminal reports whether w is a character device, and so most likely a
// terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
