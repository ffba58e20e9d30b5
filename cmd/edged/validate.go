package main

import (
	"errors"
	"fmt"
)

type validateCmd struct {
	Config    string `short:"c" required:"" placeholder:"FILE" help:"Configuration file; - is standard input."`
	Print     bool   `help:"Print the configuration as it takes effect, with every default; secrets stay in their files."`
	overrides `group:"Instead of the file's keys:"`
}

func (validateCmd) Help() string {
	return `Reads the file as edged run does, also the key and token files that it names, and reports everything
that is wrong, each as FILE:LINE:COLUMN: KEY: what is wrong and what was expected.

Examples:

    edged validate -c edged.yaml
    edged validate -c edged.yaml --print > effective.yaml

Exit code: 0 when the file is right, 1 when it is not.`
}

// Run checks the configuration; all that is wrong with it is the error.
func (c *validateCmd) Run(p *process) error {
	l, err := source{file: c.Config, stdin: p.stdin, flags: c.overrides, env: p.env, host: p.host}.load()
	if err != nil {
		var config configError
		if errors.As(err, &config) {
			return config
		}
		return err
	}
	for _, w := range l.warnings {
		fmt.Fprintf(p.stderr, "%s: warning: %s\n", c.Config, w)
	}
	if c.Print {
		return printDocument(p.stdout, l.document)
	}
	fmt.Fprintf(p.stdout, "%s: the configuration is valid\n", c.Config)
	return nil
}
