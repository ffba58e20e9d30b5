//go:build unix && !linux

package loadtest

import "errors"

func enterNetwork(argv, environ []string) error { return errors.ErrUnsupported }

func (n *bridge) join(int) error { return errors.ErrUnsupported }
