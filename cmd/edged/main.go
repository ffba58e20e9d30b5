// Command edged is a self-hosted CDN edge node, its tools and its test
// harness in one binary.
//
// main.go parses the command line and turns errors into exit codes; each
// command has a file of its own name. A configuration goes through
// decoder.go (YAML to a document), document.go (the keys), config.go (all
// checks at once) to an edge.Config.
//
// Only this folder reads flags, the environment and files that a
// configuration names; the packages below it take values.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// A process is what a command may touch of the outside, so that tests run
// commands without one.
type process struct {
	args   []string // without the program's name
	self   string   // path of the program's file at the start; empty: not known
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    func(string) (string, bool)
	host   func() (string, error)
}

type cli struct {
	Run      runCmd      `cmd:"" help:"Run one node."`
	Demo     demoCmd     `cmd:"" help:"Start a sample origin and a cluster on this machine, to try things out."`
	Loadtest loadtestCmd `cmd:"" help:"Measure a cluster, its own or a running one."`
	Validate validateCmd `cmd:"" help:"Check a configuration file; with --print show it with all defaults."`
	Size     sizeCmd     `cmd:"" help:"Compute what filters for a number of keys, a rate and a number of peers take."`
	Status   statusCmd   `cmd:"" help:"Show a running node and its cluster."`
	Explain  explainCmd  `cmd:"" help:"Show what would happen to a request, and why."`
	Purge    purgeCmd    `cmd:"" help:"Remove stored responses from every member."`
	Reload   reloadCmd   `cmd:"" help:"Make a running node read its configuration again."`
	Drain    drainCmd    `cmd:"" help:"Make a running node leave in good order."`
	Keys     keysCmd     `cmd:"" help:"Show which cluster keys the members have, while the key is changed."`
	Keygen   keygenCmd   `cmd:"" help:"Make a cluster key."`
	Version  versionCmd  `cmd:"" help:"Show version, commit, Go version and protocols."`
}

func main() {
	// Asked now, for later the answer is another one when the file was renamed, and
	// an upgrade would start the old program again.
	self, err := os.Executable()
	if err != nil {
		self = ""
	}
	os.Exit(execute(&process{
		args:   os.Args[1:],
		self:   self,
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		env:    os.LookupEnv,
		host:   os.Hostname,
	}))
}

// execute runs the command line and returns the exit code.
func execute(p *process) (code int) {
	parser, err := kong.New(&cli{},
		kong.Name("edged"),
		kong.Description("A self-hosted CDN edge node: caches HTTP in front of origins, in a cluster whose nodes know by gossiped filters what the others hold.\n\nTry: edged demo"),
		kong.Writers(p.stdout, p.stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Help(showHelp),
		kong.Bind(p),
		kong.Exit(func(code int) { panic(helpShown{code}) }),
	)
	if err != nil {
		panic(err) // the command line's own declaration is wrong
	}
	defer func() {
		// Kong goes on after Exit returns, so help leaves this way.
		if r := recover(); r != nil {
			shown, ok := r.(helpShown)
			if !ok {
				panic(r)
			}
			code = shown.code
		}
	}()

	ctx, err := parser.Parse(p.args)
	if err != nil {
		fmt.Fprintf(p.stderr, "edged: %v\n%s\n", err, helpHint(err))
		return exitUsage
	}
	return report(p.stderr, ctx.Run())
}

type helpShown struct{ code int }

// showHelp prints the help of the command that was meant. That of a group whose
// name alone runs one of its commands is the help of that one.
func showHelp(o kong.HelpOptions, ctx *kong.Context) error {
	if n := ctx.Selected(); n != nil && n.DefaultCmd != nil {
		ctx.Path = append(ctx.Path, &kong.Path{Parent: n, Command: n.DefaultCmd})
	}
	return kong.DefaultHelpPrinter(o, ctx)
}

// helpHint names the help page of the command that was meant.
func helpHint(err error) string {
	var pe *kong.ParseError
	if errors.As(err, &pe) && pe.Context != nil {
		if cmd := pe.Context.Command(); cmd != "" {
			first, _, _ := strings.Cut(cmd, " ")
			return fmt.Sprintf("See edged %s --help", first)
		}
	}
	return "See edged --help"
}

// A usageError is the caller's mistake: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errReported is a failure that the command has told of already.
var errReported = errors.New("failed")

// report prints a command's error and returns the exit code that it means.
func report(w io.Writer, err error) int {
	var usage usageError
	var config configError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailure
	case errors.As(err, &config):
		// Each line begins with its place, as editors and scripts expect.
		fmt.Fprintln(w, config)
	default:
		fmt.Fprintf(w, "edged: %v\n", err)
	}
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}
