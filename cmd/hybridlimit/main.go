// Hybridlimit is a tool for operators. It shows and changes the state that limiters keep in Redis.
//
//	hybridlimit list
//	hybridlimit list    -name api -n 100
//	hybridlimit top     [-name api] [-by busiest|emptiest|running]
//	hybridlimit inspect -name api -user alice
//	hybridlimit inspect -name api -ip 2001:db8::7
//	hybridlimit inspect -name api -api-key - <key.txt
//	hybridlimit inspect -name api -digest y1eRbAQ7NoCgToOgndaqrA
//	hybridlimit reset   -name api -user alice
//	hybridlimit switch  -name api [normal|shadow|local_only|allow_all|deny_all]
//	hybridlimit limit   -name api [-part 0.1] ["200/s burst 400"]
//	hybridlimit limit   -name api -user alice ["200/s burst 400"]
//	hybridlimit limit   -name api -list
//	hybridlimit limit   -name api -clear
//	hybridlimit key     -user alice
//	hybridlimit periods "10000/month in Europe/Berlin from day 15"
//	hybridlimit check   limits.json
//	hybridlimit version
//	hybridlimit completion bash
//
// The flags that name a key are the same for all commands about a key: -for-key has its text,
// and -user, -ip, -api-key and -bearer make it as package clientkey does. Each command has
// -json.
//
// The tool is not a process of the fleet: it sends no heartbeats and takes no leases. A process has state that Redis
// does not have, such as its leases and the units that it owes; the process's debug handler (package hybrid/debug)
// shows it. List, inspect and top write nothing, with one exception: with -functions, they load a missing library into
// Redis. Switch and limit change nothing if no process has a limiter of the name, unless -force is set.
//
// Periods prints when the periods of a limit begin and end, by the zone data of this machine. Other machines may have
// other data.
//
// Check reads a file of package limitfile, in JSON, and prints its limits or all of its errors, one a line. It does not
// connect to Redis, and ends with status 1 if the file is not valid.
//
// The flags -prefix and -hash-secret-file must have the values of HubConfig; with other values the tool looks at other
// keys. It asks the processes for HubConfig.Tags, and for their limits; -tags and -limit replace the answers. Put a
// password into the environment (HYBRIDLIMIT_REDIS), because other users can see a program's arguments. The output
// contains keys.
//
// Some commands scan all keys of Redis: list, top and -digest, and also inspect, switch and limit if the limiter has no
// process. They use SCAN, page by page and at a bounded rate, on a cluster on each master. The Redis user needs the
// right to run SCAN and GET. The tool reads API keys and tokens from standard input, never from an argument.
//
// The exit status is
//
//	0  success
//	1  failure
//	2  the arguments are invalid
//	3  nothing was found or changed: Redis has no state under the key, no process has a
//	   limiter of the name, or the limit of a key was refused
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	_ "time/tzdata" // for a machine without zone data

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	redis.SetLogger(&logging.VoidLogger{}) // the errors have the same content
	os.Exit(run(ctx, os.Args[1:], os.Getenv("HYBRIDLIMIT_REDIS"), os.Stdin, os.Stdout, os.Stderr))
}

// command is a command of the tool.
type command struct {
	name, args, what string
	// prepare adds the command's flags and returns the function that runs it.
	prepare func(fs *flag.FlagSet, c *connection) job
	offline bool // has no flags of a connection
}

var commands []command

func init() { // completion refers to the commands
	commands = []command{
		{"list", "", "list the limiters in Redis, their limits and keys (scans Redis)", list, false},
		{"top", "", "list the busiest or emptiest keys of one limiter or all (scans Redis)", top, false},
		{"inspect", "[KEY]", "describe the state of a key in Redis", inspect, false},
		{"reset", "[KEY]", "give a key its full limit again", reset, false},
		{"switch", "[SWITCH]", "show or set the switch of a limiter in the whole fleet", fleetSwitch, false},
		{"limit", "[LIMIT]", "show, set or clear the limit of a limiter, or of one key, in the whole fleet", fleetLimit, false},
		{"key", "[KEY]", "print the text of a key, without Redis", keyText, true},
		{"periods", "LIMIT", "print the present period of a limit and the next ones, without Redis", periods, true},
		{"check", "FILE", "check a file with limits, without Redis", check, true},
		{"version", "", "print the version of the tool", version, true},
		{"completion", "SHELL", "print the completion for bash or zsh", completion, true},
	}
}

// commandNames returns the names of the commands, as a sentence has them.
func commandNames() string {
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.name
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

const usage = "usage: hybridlimit COMMAND [FLAGS] [ARGUMENT]\n\n"

const statuses = `
Some commands scan all keys of Redis: list, top and -digest, and also inspect, switch
and limit if the limiter has no process. They need the right to run SCAN and GET.

Exit status:
  0  success
  1  failure
  2  the arguments are invalid
  3  nothing was found or changed: no state under the key, no process with a limiter of
     the name, or the limit of a key was refused
`

// nothing is the error of a command that found or changed nothing: exit status 3.
type nothing string

func (n nothing) Error() string { return "hybridlimit: " + string(n) }

// run is the program. redisURL is the value of HYBRIDLIMIT_REDIS.
func run(ctx context.Context, args []string, redisURL string, in io.Reader, out, errOut io.Writer) int {
	errOut = redacted(errOut, args)
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		fmt.Fprint(errOut, usage)
		for _, c := range commands {
			fmt.Fprintf(errOut, "  %-10s %-9s %s\n", c.name, c.args, c.what)
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
	fmt.Fprintf(errOut, "hybridlimit: unknown command %q: the commands are %s\n", args[0], commandNames())
	return 2
}

// run parses the command's flags and runs it. It returns the exit status.
func (c command) run(ctx context.Context, args []string, redisURL string, in io.Reader, out, errOut io.Writer) int {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.Usage = func() {} // after an error it would hide the error
	usage := func() {
		fmt.Fprintf(errOut, "usage: hybridlimit %s [FLAGS] %s\n%s\n\n", c.name, c.args, c.what)
		fs.PrintDefaults()
		fmt.Fprint(errOut, statuses)
	}
	online := fs
	if c.offline {
		online = flag.NewFlagSet("", flag.ContinueOnError) // parses nothing
	}
	conn := addConnection(online, redisURL)
	conn.in = in
	answer := &printer{}
	fs.BoolVar(&answer.json, "json", false, "print JSON")
	job := c.prepare(fs, conn)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		usage()
		return 0
	case err != nil: // package flag has printed it
		fmt.Fprintf(errOut, "hybridlimit %s -h lists the flags\n", c.name)
		return 2
	}
	err := c.do(ctx, conn, job, fs.Args(), answer)
	if failed := answer.flush(out); failed != nil && err == nil {
		err = fmt.Errorf("hybridlimit: the answer cannot be written: %w", failed)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(errOut, err)
	if _, ok := errors.AsType[nothing](err); ok {
		return 3
	}
	if errors.Is(err, hybridlimit.ErrInvalid) {
		return 2
	}
	return 1
}

// do checks all flags and arguments, connects to Redis, and runs the command.
func (c command) do(ctx context.Context, conn *connection, j job, args []string, out *printer) error {
	var bad adapter.Violations
	if !c.offline {
		conn.check(&bad)
	}
	j.check(&bad, args)
	err := bad.Err("hybridlimit")
	if j.invalid != nil {
		err = j.invalid(err)
	}
	if err != nil {
		return err
	}
	if !c.offline {
		if err := conn.open(ctx); err != nil {
			return err
		}
		defer conn.close()
	}
	return j.do(ctx, args, out)
}

// redacted returns a writer to w that replaces each argument that contains a URL. If a URL is in a wrong place, an
// error quotes it, together with its password.
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
	slices.SortFunc(urls, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // a text before its own parts
	var pairs []string
	for _, u := range urls {
		pairs = append(pairs, u, "[url]")
	}
	return redactor{w, strings.NewReplacer(pairs...)}
}

// redactor writes to w, with some texts replaced.
type redactor struct {
	w io.Writer
	r *strings.Replacer
}

// Write expects whole messages, as packages fmt and flag write them.
func (r redactor) Write(p []byte) (int, error) {
	if _, err := r.r.WriteString(r.w, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// job is a command with its flags.
type job struct {
	// check adds a violation for each invalid flag of the command, and for its arguments.
	check func(bad *adapter.Violations, args []string)
	// invalid returns the error of the command for that of check, or for nil. Nil: the error stays.
	invalid func(err error) error
	do      func(ctx context.Context, args []string, out *printer) error
}

// invalid returns the error of one violation.
func invalid(name string, value any, problem string) error {
	var bad adapter.Violations
	bad.Add(name, value, problem)
	return bad.Err("hybridlimit")
}

// arguments adds a violation if the number of arguments is wrong.
func arguments(bad *adapter.Violations, args []string, least, most int, what string) {
	bad.AddIf(len(args) < least || len(args) > most, "arguments", args, what)
}

// printer takes the answer of a command, as text and as a value for -json. It writes one of them at the end.
type printer struct {
	bytes.Buffer
	json  bool
	value any
}

// flush writes the answer. A command that failed before it set a value has none.
func (p *printer) flush(w io.Writer) error {
	if !p.json {
		_, err := p.WriteTo(w)
		return err
	}
	if p.value == nil {
		return nil
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(p.value)
}
