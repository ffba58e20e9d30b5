package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

type drainCmd struct {
	Wait bool `help:"Wait until the node has stopped, for --timeout at most."`
	adminFlags
}

func (drainCmd) Help() string {
	return `The node fails its readiness, leaves the cluster, finishes the requests in flight and stops, as with SIGTERM.

Examples:

    edged drain
    edged drain --wait --timeout 1m --admin 10.0.0.7:9901 --token-file /etc/edged/token

Exit code: 0 when the node drains (with --wait: has stopped), 1 when it does not.`
}

// How often a draining node is asked whether it is still there.
const drainPoll = 200 * time.Millisecond

// Run makes the node drain.
func (c *drainCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	var done struct {
		Draining bool `json:"draining"`
	}
	raw, err := client.post(ctx, "/v1/drain", struct{}{}, &done)
	switch {
	case err != nil:
		return err
	case !done.Draining:
		return client.unexpected("it drains")
	}
	if c.Wait {
		if err := client.gone(ctx); err != nil {
			return err
		}
	}
	switch {
	case c.JSON && len(raw) > 0:
		return printRaw(p.stdout, raw)
	case c.Wait:
		_, err = fmt.Fprintf(p.stdout, "the node at %s has stopped\n", client.base.Host)
	default:
		_, err = fmt.Fprintf(p.stdout, "the node at %s is draining\n", client.base.Host)
	}
	return err
}

// gone returns when nobody answers at the admin address any more.
func (c *adminClient) gone(ctx context.Context) error {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		if _, err := c.do(ctx, http.MethodGet, "/livez", nil, nil); errors.Is(err, errNoNode) && ctx.Err() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node at %s drains, but has not stopped in time: see --timeout", c.base.Host)
		case <-tick.C:
		}
	}
}
