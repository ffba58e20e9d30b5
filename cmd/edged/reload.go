package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"edged/edge"
)

type reloadCmd struct {
	adminFlags
}

func (reloadCmd) Help() string {
	return `The node reads its configuration file again and takes it over, all of it or nothing: no connection is cut
and no stored response is lost. What is wrong with the file, and what needs a restart, is printed with line and key.

Examples:

    edged reload
    edged reload --admin 10.0.0.7:9901 --token-file /etc/edged/token

Exit code: 0 when the new configuration is in effect, 1 when the node goes on with the old one.`
}

// Run makes a running node reload its configuration.
func (c *reloadCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	var done struct {
		Reloaded bool `json:"reloaded"`
	}
	raw, err := client.post(ctx, "/v1/reload", struct{}{}, &done)
	switch {
	case err != nil:
		return err
	case !done.Reloaded:
		return client.unexpected("it has reloaded")
	}
	if c.JSON {
		return printRaw(p.stdout, raw)
	}
	_, err = fmt.Fprintf(p.stdout, "the node at %s has reloaded its configuration\n", client.base.Host)
	return err
}

// A reloader gives a node its configuration anew, because of a signal or of
// the admin API: one at a time. mu is held while the node is built, too, since
// the admin API may ask before.
type reloader struct {
	src      source
	log      *slog.Logger
	notify   *notifier
	complete func(edge.Config) edge.Config

	mu   sync.Mutex
	node *edge.Node
}

// reload reads the configuration again and gives it to the node. What is wrong
// with it is logged and returned, and the node goes on with the one that it has.
func (r *reloader) reload() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify.tell("RELOADING=1")
	defer r.notify.tell("READY=1")
	next, err := r.src.again()
	if err != nil {
		r.node.ReloadFailed()
	} else {
		next.warn(r.log)
		if err = r.node.Reload(r.complete(next.config)); err != nil {
			err = next.explain(err)
		}
	}
	var config configError
	switch {
	case errors.As(err, &config):
		for _, p := range config {
			r.log.Error("the configuration was not reloaded", "problem", p.String())
		}
	case err != nil:
		r.log.Error("the configuration was not reloaded", "err", err)
	}
	return err
}
