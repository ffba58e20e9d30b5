package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"edged/edge/admin"
)

type explainCmd struct {
	URL    string   `arg:"" help:"The URL as a client would ask for it, such as http://www.example.com/a.css."`
	Header []string `short:"H" sep:"none" placeholder:"NAME: VALUE" help:"A field of the request; may be repeated."`
	Method string   `short:"X" default:"GET" help:"The request's method (${default})."`
	adminFlags
}

func (explainCmd) Help() string {
	return `Nothing is sent to a peer or an origin, and nothing is stored or counted.

Examples:

    edged explain http://www.example.com/a.css
    edged explain -H 'Accept-Encoding: gzip' -H 'Cache-Control: no-cache' http://www.example.com/
    edged explain --json http://www.example.com/a.css | jq -r .would

Exit code: 0 when the node explained it, 1 when it does not answer or has no site for the URL, 2 for
wrong usage.`
}

// Run shows what would happen to a request.
func (c *explainCmd) Run(p *process) error {
	query := url.Values{"url": {c.URL}, "method": {c.Method}}
	for _, h := range c.Header {
		name, _, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return usagef("-H %q is not a field: want 'NAME: VALUE'", h)
		}
		query.Add("header", h)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	var x admin.Explanation
	raw, err := client.get(context.Background(), "/v1/explain", query, &x)
	if err != nil {
		return asUsage(err)
	}
	if c.JSON {
		return printRaw(p.stdout, raw)
	}
	return printExplanation(p.stdout, x)
}

func printExplanation(w io.Writer, x admin.Explanation) error {
	fmt.Fprintf(w, "%s %s\n\n", printable(x.Method), printable(x.URL))
	err := table(w, func(w io.Writer) {
		for _, kv := range [][2]string{{"site", x.Site}, {"partition", x.Partition}, {"key", x.Key}, {"hash", x.Hash}, {"owner on the ring", x.Owner}} {
			if kv[1] != "" {
				fmt.Fprintf(w, "%s\t%s\n", kv[0], printable(kv[1]))
			}
		}
	})
	if err != nil {
		return err
	}

	fmt.Fprintln(w)
	err = table(w, func(w io.Writer) {
		for i, s := range x.Steps {
			fmt.Fprintf(w, "%d. %s\t%s\t%s\n", i+1, printable(s.Name), printable(s.Result), printable(s.Rule))
		}
	})
	if err != nil {
		return err
	}

	if len(x.Stored) > 0 {
		fmt.Fprintln(w, "\nstored under this key:")
	}
	for _, s := range x.Stored {
		kind := fmt.Sprintf("status %d", s.Status)
		if s.Negative {
			kind = fmt.Sprintf("negative entry %d", s.Status)
		}
		fresh := "stale" // at this moment, or by a soft purge
		switch {
		case s.TTLSeconds > 0:
			fresh = "fresh for " + seconds(s.TTLSeconds)
		case s.TTLSeconds < 0:
			fresh = "stale for " + seconds(-s.TTLSeconds)
		}
		fmt.Fprintf(w, "  %s, %s, age %s, %s", kind, approxSize(s.Bytes), seconds(s.AgeSeconds), fresh)
		if s.Variant != "" {
			fmt.Fprintf(w, ", variant %s", printable(s.Variant))
		}
		if !s.Matches {
			fmt.Fprint(w, " (does not match this request)")
		}
		if len(s.Tags) > 0 {
			fmt.Fprintf(w, ", tags %s", printable(strings.Join(s.Tags, " ")))
		}
		fmt.Fprintln(w)
	}

	if len(x.Filters) > 0 {
		fmt.Fprintln(w, "\nthe peers' filters say:")
	}
	for _, f := range x.Filters {
		fmt.Fprintf(w, "  %s: %s\n", printable(f.Member), printable(f.Says))
	}
	_, err = fmt.Fprintf(w, "\n%s\n", printable(x.Would))
	return err
}
