package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
)

type keygenCmd struct {
	Out string `short:"o" placeholder:"FILE" type:"path" help:"Write the key to a new file that only its owner can read, rather than to standard output."`
}

func (keygenCmd) Help() string {
	return `The key encrypts and authenticates everything between the members; all of them need it. A key file with
several lines is a keyring: the first key encrypts, all of them decrypt. To change the key without
a stop, append the new one on all members, then move it to the first line, then take the old one away,
with SIGHUP after each. A member refuses a step before all others have taken the one before: see edged keys.

Examples:

    edged keygen -o /etc/edged/cluster.key
    edged keygen >> /etc/edged/cluster.key`
}

// Run prints a key of 32 random bytes in base64.
func (c *keygenCmd) Run(p *process) error {
	key := make([]byte, 32)
	rand.Read(key) // never fails: crypto/rand ends the process instead
	line := base64.StdEncoding.EncodeToString(key) + "\n"
	if c.Out == "" {
		_, err := fmt.Fprint(p.stdout, line)
		return err
	}
	f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	if _, err := f.WriteString(line); err != nil {
		f.Close()
		return fmt.Errorf("write the key: %w", err)
	}
	return f.Close()
}
