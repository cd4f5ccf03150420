// Hybridlimit is for operators: it shows and changes what Redis keeps of limits.
//
//	hybridlimit list
//	hybridlimit list    -name api -n 100
//	hybridlimit inspect -name api -limit "100/s burst 200" alice
//	hybridlimit inspect -name api -ip 2001:db8::7
//	hybridlimit inspect -name api -api-key - <key.txt
//	hybridlimit inspect -name api -digest y1eRbAQ7NoCgToOgndaqrA
//	hybridlimit reset   -name api -limit "100/s burst 200" alice
//	hybridlimit switch  -name api [normal|shadow|local_only|allow_all|deny_all]
//	hybridlimit top     -name api [-by busiest|emptiest]
//
// It is no process of the fleet: it sends no heartbeats and holds nothing. What a
// process knows beyond Redis (leases, what it owes) its own debug handler shows,
// package hybrid/debug. List, inspect and top write nothing, but that with -functions the
// library is loaded where it is missing.
//
// The deployment's identity is told by -prefix, -tags and -hash-secret-file, which
// must be those of HubConfig: with others it looks at other keys. A password
// belongs into the environment (HYBRIDLIMIT_REDIS), since others see the
// arguments of a program. What it prints has keys in it.
//
// List, top, inspect -digest, and inspect and switch of a limiter that has no
// process, look through all keys of Redis with SCAN, a page at a time and at a
// bounded rate; on a cluster on each master. That needs the right to SCAN and GET.
// An API key is read from standard input, never from an argument.
//
// The exit status is 0, 1 if it could not be done, 2 if the arguments are wrong,
// or 3 if Redis has nothing of what was asked for: no state under the key, no
// limiter of the name.
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

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	redis.SetLogger(&logging.VoidLogger{}) // what it would write, the errors say
	os.Exit(run(ctx, os.Args[1:], os.Getenv("HYBRIDLIMIT_REDIS"), os.Stdin, os.Stdout, os.Stderr))
}

// command is one of the program's.
type command struct {
	name, args, what string
	// prepare adds flags and returns what runs with them.
	prepare func(fs *flag.FlagSet, c *connection) func(ctx context.Context, args []string, out io.Writer) error
}

var commands = []command{
	{"list", "", "the limiters that Redis knows, and their keys, by a scan", list},
	{"inspect", "[KEY]", "what Redis has of a key, in words", inspect},
	{"reset", "KEY", "forget what a key has used", reset},
	{"switch", "[SWITCH]", "show, or set, the switch of a limit's whole fleet", fleetSwitch},
	{"top", "", "the busiest, or emptiest, keys of a limit, by a scan", top},
}

const usage = "usage: hybridlimit COMMAND [FLAGS] [ARGUMENT]\n\n"

const statuses = `
List, top, inspect -digest, and inspect and switch of a limiter without a
process, look through all keys of Redis: that needs the right to SCAN and GET.
The exit status is 0, 1 if it could not be done, 2 if the arguments are wrong,
or 3 if Redis has nothing of what was asked for: no state under the key, no
limiter of the name.
`

// nothing is the error of a command that has found nothing.
type nothing string

func (n nothing) Error() string { return "hybridlimit: " + string(n) }

// run is the program. redisURL is what the environment says.
func run(ctx context.Context, args []string, redisURL string, in io.Reader, out, errOut io.Writer) int {
	errOut = redacted(errOut, args)
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		fmt.Fprint(errOut, usage)
		for _, c := range commands {
			fmt.Fprintf(errOut, "  %-8s %-9s %s\n", c.name, c.args, c.what)
		}
		fmt.Fprintf(errOut, "\nhybridlimit COMMAND -h lists the flags.\n%s", statuses)
		if len(args) == 0 {
			return 2
		}
		return 0
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:], redisURL, in, out, errOut)
		}
	}
	fmt.Fprintf(errOut, "hybridlimit: %q is no command: there are list, inspect, reset, switch and top\n", args[0])
	return 2
}

func (c command) run(ctx context.Context, args []string, redisURL string, in io.Reader, out, errOut io.Writer) int {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.Usage = func() {
		fmt.Fprintf(errOut, "usage: hybridlimit %s [FLAGS] %s\n%s\n\n", c.name, c.args, c.what)
		fs.PrintDefaults()
		fmt.Fprint(errOut, statuses)
	}
	conn := addConnection(fs, redisURL)
	conn.in = in
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
	if _, ok := errors.AsType[nothing](err); ok {
		return 3
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
