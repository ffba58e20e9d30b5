package main

import (
	"errors"
	"os"

	"edged/loadtest"
)

type loadtestDiffCmd struct {
	A         string         `arg:"" type:"path" help:"report.json of the run to compare with."`
	B         string         `arg:"" type:"path" help:"report.json of the other run."`
	Threshold loadtest.Share `placeholder:"SHARE" default:"5%" help:"How much worse B may be."`
}

func (loadtestDiffCmd) Help() string {
	return `Compares two reports. A number of B is worse when it is worse than A's by more than the threshold, and by more than
the noise explains: four standard errors, from how much it moved from second to second in the two runs.

Example:

    edged loadtest diff before/report.json after/report.json

Exit code: 0, 1 when something is worse, 2 for wrong usage.`
}

// Run compares.
func (c *loadtestDiffCmd) Run(p *process) error {
	a, err := readReport(c.A)
	if err != nil {
		return err
	}
	b, err := readReport(c.B)
	if err != nil {
		return err
	}
	if loadtest.WriteDiff(p.stdout, a, b, float64(c.Threshold)) {
		return errReported
	}
	return nil
}

func readReport(name string) (*loadtest.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close()
	r, err := loadtest.ReadReport(f)
	if err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	return r, nil
}

// usageOf makes an error of the load test that is the caller's mistake one.
func usageOf(err error) error {
	if errors.Is(err, loadtest.ErrUsage) {
		return usageError{err}
	}
	return err
}
