package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

func (versionCmd) Help() string {
	return `Example:

    edged version --json`
}

// A build is what the binary knows of itself.
type build struct {
	Version   string   `json:"version"`
	Commit    string   `json:"commit"`   // "unknown" when built outside of a checkout
	Time      string   `json:"time"`     // of the commit, RFC 3339
	Modified  bool     `json:"modified"` // built from a tree with changes
	Go        string   `json:"go"`
	Platform  string   `json:"platform"`
	Protocols []string `json:"protocols"`
}

func readBuild() build {
	b := build{
		Version:   "devel",
		Commit:    "unknown",
		Go:        runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
		Protocols: []string{"HTTP/1.1"},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Run prints the build.
func (c *versionCmd) Run(p *process) error {
	b := readBuild()
	if c.JSON {
		enc := json.NewEncoder(p.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(b)
	}
	commit := b.Commit
	if b.Time != "" {
		commit += " of " + b.Time
	}
	if b.Modified {
		commit += ", with changes"
	}
	fmt.Fprintf(p.stdout, "edged     %s\ncommit    %s\ngo        %s %s\n", b.Version, commit, b.Go, b.Platform)
	for i, proto := range b.Protocols {
		label := "protocols"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(p.stdout, "%-9s %s\n", label, proto)
	}
	return nil
}
