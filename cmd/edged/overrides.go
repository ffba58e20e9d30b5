package main

import "fmt"

// overrides are the flags of `edged run` and `edged validate` that stand for
// keys of the file. What is given replaces the key's value, a list as a whole.
type overrides struct {
	Origin    []string `placeholder:"URL" sep:"none" help:"Origin of every host, such as http://127.0.0.1:9000; repeat it for more servers of the same content. With a file of one site: that site's origins."`
	Listen    string   `placeholder:"HOST:PORT" help:"Address for clients (listen.address); by default :8080."`
	Admin     string   `placeholder:"HOST:PORT" help:"Address for the admin API and metrics (admin.address); by default 127.0.0.1:9901."`
	Name      string   `placeholder:"NAME" help:"The node's name, unique in the cluster (name); by default the host's."`
	Gossip    string   `placeholder:"HOST:PORT" help:"Address for membership, UDP and TCP (cluster.gossip); by default port 7946."`
	Peer      string   `placeholder:"HOST:PORT" help:"Address for HTTP between nodes (cluster.peer); by default port 7947."`
	Join      []string `placeholder:"HOST:PORT" help:"Gossip address of any member; may be repeated (cluster.join)."`
	KeyFile   string   `placeholder:"FILE" type:"path" help:"File with the cluster's key (cluster.key_file)."`
	TokenFile string   `placeholder:"FILE" type:"path" help:"File with the admin API's token (admin.token_file)."`
}

// apply puts the flags into the document and notes under flags which path each
// of them set.
func (o overrides) apply(d *document, flags map[string]string) []problem {
	set := func(flag, path string, field *string, v string) {
		if v != "" {
			*field, flags[path] = v, flag
		}
	}
	set("--listen", "listen.address", &d.Listen.Address, o.Listen)
	set("--admin", "admin.address", &d.Admin.Address, o.Admin)
	set("--name", "name", &d.Name, o.Name)
	set("--gossip", "cluster.gossip", &d.Cluster.Gossip, o.Gossip)
	set("--peer", "cluster.peer", &d.Cluster.Peer, o.Peer)
	set("--key-file", "cluster.key_file", &d.Cluster.KeyFile, o.KeyFile)
	set("--token-file", "admin.token_file", &d.Admin.TokenFile, o.TokenFile)
	if len(o.Join) > 0 {
		d.Cluster.Join, flags["cluster.join"] = o.Join, "--join"
	}
	if len(o.Origin) == 0 {
		return nil
	}
	switch len(d.Sites) {
	case 0:
		d.Sites = []siteSection{{Name: "default"}}
	case 1:
	default:
		return []problem{{flag: "--origin", path: "sites", text: fmt.Sprintf("the file has %d sites: want the flag with a file of one site or none", len(d.Sites))}}
	}
	d.Sites[0].Origin.URLs, flags["sites[0].origin.urls"] = o.Origin, "--origin"
	return nil
}
