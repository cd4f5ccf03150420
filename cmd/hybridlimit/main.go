// Hybridlimit is for operators: it shows and changes what Redis keeps of limits.
//
//	hybridlimit inspect -name api -limit "100/s burst 200" alice
//	hybridlimit reset   -name api -limit "100/s burst 200" alice
//	hybridlimit switch  -name api [normal|shadow|local_only|allow_all|deny_all]
//	hybridlimit top     -name api [-by busiest|emptiest]
//
// It is no process of the fleet: it sends no heartbeats and holds nothing. What a
// process knows beyond Redis (leases, what it owes) its own debug handler shows,
// package hybrid/debug. Inspect and top write nothing, but that with -functions the
// library is loaded where it is missing.
//
// The deployment's identity is told by -prefix, -tags and -hash-secret-file, which
// must be those of HubConfig: with others it looks at other keys. A password
// belongs into the environment (HYBRIDLIMIT_REDIS), since others see the
// arguments of a program. What it prints has keys in it.
//
// The exit status is 0, 1 if it could not be done, or 2 if the arguments are wrong.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv("HYBRIDLIMIT_REDIS"), os.Stdout, os.Stderr))
}

// command is one of the program's.
type command struct {
	name, args, what string
	// prepare adds flags and returns what runs with them.
	prepare func(fs *flag.FlagSet, c *connection) func(ctx context.Context, args []string, out io.Writer) error
}

var commands = []command{
	{"inspect", "KEY", "what Redis has of a key, in words", inspect},
	{"reset", "KEY", "forget what a key has used", reset},
	{"switch", "[SWITCH]", "show, or set, the switch of a limit's whole fleet", fleetSwitch},
	{"top", "", "the busiest, or emptiest, keys of a limit, by a scan", top},
}

const usage = "usage: hybridlimit COMMAND [FLAGS] [ARGUMENT]\n\n"

// run is the program. redisURL is what the environment says.
func run(ctx context.Context, args []string, redisURL string, out, errOut io.Writer) int {
	errOut = redacted(errOut, args)
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		fmt.Fprint(errOut, usage)
		for _, c := range commands {
			fmt.Fprintf(errOut, "  %-8s %-9s %s\n", c.name, c.args, c.what)
		}
		fmt.Fprintf(errOut, "\nhybridlimit COMMAND -h lists the flags.\n")
		if len(args) == 0 {
			return 2
		}
		return 0
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:], redisURL, out, errOut)
		}
	}
	fmt.Fprintf(errOut, "hybridlimit: %q is no command: there are inspect, reset, switch and top\n", args[0])
	return 2
}

func (c command) run(ctx context.Context, args []string, redisURL string, out, errOut io.Writer) int {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.Usage = func() {
		fmt.Fprintf(errOut, "usage: hybridlimit %s [FLAGS] %s\n%s\n\n", c.name, c.args, c.what)
		fs.PrintDefaults()
	}
	conn := addConnection(fs, redisURL)
	do := c.prepare(fs, conn)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // flag has said it
	}
	err := do(ctx, fs.Args(), out)
	if err == nil {
		return 0
	}
	fmt.Fprintln(errOut, err)
	if errors.Is(err, hybridlimit.ErrInvalid) {
		return 2
	}
	return 1
}

// redacted is a writer in whose text no argument with a URL in it is to be seen:
// where it stands in the wrong place an error repeats it, password and all.
func redacted(w io.Writer, args []string) io.Writer {
	var urls []string
	add := func(s string) {
		quoted := strconv.Quote(s)
		urls = append(urls, s, quoted[1:len(quoted)-1])
	}
	for _, a := range args {
		if !strings.Contains(a, "://") {
			continue
		}
		add(a)
		if _, value, ok := strings.Cut(a, "="); ok && strings.Contains(value, "://") {
			add(value)
		}
	}
	slices.SortFunc(urls, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // a whole before its part
	var pairs []string
	for _, u := range urls {
		pairs = append(pairs, u, "[url]")
	}
	return redactor{w, strings.NewReplacer(pairs...)}
}

type redactor struct {
	w io.Writer
	r *strings.Replacer
}

// Write takes whole messages, as fmt and flag write them.
func (r redactor) Write(p []byte) (int, error) {
	if _, err := r.r.WriteString(r.w, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// arguments notes a number of arguments that is wrong.
func arguments(bad *hybridlimit.Violations, args []string, least, most int, what string) {
	if len(args) < least || len(args) > most {
		bad.Add("arguments", args, what)
	}
}
