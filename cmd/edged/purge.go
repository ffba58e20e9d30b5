package main

import (
	"context"
	"fmt"
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
	Wait     string   `enum:"all,none" default:"all" help:"Whose acknowledgement to wait for: all or none (${default})."`
	adminFlags
}

func (purgeCmd) Help() string {
	return `Purges on every member of the cluster, and forgets remembered absences likewise.

Examples:

    edged purge http://www.example.com/a.css
    edged purge --tag product-42 --tag prices --soft
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
	if len(req.URLs)+len(req.Tags)+len(req.Prefixes)+len(req.Hosts) == 0 && !req.All {
		return usagef("nothing to purge: want URLs, --tag, --prefix, --host or --all")
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	var res admin.PurgeResult
	raw, err := client.post(context.Background(), "/v1/purge", req, &res)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printRaw(p.stdout, raw)
	} else {
		_, err = fmt.Fprintf(p.stdout, "purge %s: %d of %d members have acknowledged\n", printable(res.ID), res.Acked, res.Members)
	}
	for _, n := range res.Nodes {
		if err == nil && !c.JSON {
			after := ""
			if n.After > 0 {
				after = fmt.Sprintf(" after %.0f ms", n.After*1000)
			}
			_, err = fmt.Fprintf(p.stdout, "  %s: %s%s\n", printable(n.Name), n.State, after)
		}
	}
	if err != nil {
		return err
	}
	if c.Wait == "none" || res.Acked >= res.Members && len(res.Missing) == 0 {
		return nil
	}
	who := "it was"
	if len(res.Missing) > 1 {
		who = "they were"
	}
	return fmt.Errorf("no acknowledgement from %s: %s not reached and may still serve what was purged", printable(strings.Join(res.Missing, ", ")), who)
}
