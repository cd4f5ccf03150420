package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// result is what is known of one package.
type result struct {
	pkg             *pkg
	output          map[string]*strings.Builder // by the test of the first level; "" has the rest
	failed          []string
	passed, skipped int
	finished        bool // the binary has run all of its tests
	done, bad       bool
	line            string // the package's line
	skips           []string
}

// failure is a failed test of the first level.
type failure struct{ pkg, test string }

func (f failure) String() string {
	if f.test == "" {
		return f.pkg
	}
	return f.pkg + "." + f.test
}

// report collects the events of one go test.
type report struct {
	seconds bool
	order   []*result
	byPath  map[string]*result
	next    int // the first package of order that is not printed

	passed, skipped int
	final           []string
	retry           []failure
	cut             bool // the time was over before the end
}

func newReport(pkgs []*pkg, seconds bool) *report {
	r := &report{seconds: seconds, byPath: map[string]*result{}}
	for _, p := range pkgs {
		x := &result{pkg: p, output: map[string]*strings.Builder{}}
		r.order = append(r.order, x)
		r.byPath[p.ImportPath] = x
	}
	return r
}

// test runs go test, and ends it with all that it started when until comes.
func (r *report) test(dir string, flags []string, until time.Time) error {
	args := append([]string{"test", "-json"}, flags...)
	for _, x := range r.order {
		args = append(args, x.pkg.ImportPath)
	}
	c := command(dir, args...)
	ownGroup(c)
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	var over atomic.Bool
	if !until.IsZero() {
		defer time.AfterFunc(time.Until(until), func() {
			over.Store(true)
			endGroup(c)
		}).Stop()
	}
	if err := r.read(out, os.Stdout); err != nil {
		return err
	}
	bad := c.Wait() != nil
	if r.cut = over.Load(); r.cut {
		return nil
	}
	if bad && len(r.final)+len(r.retry) == 0 {
		r.final = append(r.final, "go test (see its output)")
	}
	for _, x := range r.order {
		if !x.done {
			r.final = append(r.final, x.pkg.ImportPath+" (no result)")
		}
	}
	return nil
}

// read takes the events from in, and prints each package when it has ended.
func (r *report) read(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			fmt.Fprint(out, line) // not from a test
		} else {
			r.take(e, out)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (r *report) take(e event, out io.Writer) {
	if e.Action == "build-output" {
		fmt.Fprint(out, e.Output)
		return
	}
	x := r.byPath[e.Package]
	if x == nil {
		return
	}
	top, _, sub := strings.Cut(e.Test, "/")
	switch e.Action {
	case "output":
		if e.Test == "" && (e.Output == "PASS\n" || e.Output == "FAIL\n") {
			x.finished = true
		}
		if x.output[top] == nil {
			x.output[top] = &strings.Builder{}
		}
		x.output[top].WriteString(e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	switch {
	case e.Test == "":
		x.done = true
		r.judge(x, e)
		r.print(out)
	case sub && e.Action != "skip":
	case e.Action == "pass":
		x.passed++
		delete(x.output, top)
	case e.Action == "skip":
		x.skipped++
		x.skips = append(x.skips, fmt.Sprintf("\tskipped: %s %s", e.Test, x.reason(top)))
		if !sub {
			delete(x.output, top)
		}
	default:
		x.failed = append(x.failed, top)
	}
}

// reason returns the last line that a test has logged, without its place: that of its skip.
func (x *result) reason(test string) string {
	all := logged.FindAllStringSubmatch(x.said(test), -1)
	if len(all) == 0 {
		return ""
	}
	return "(" + all[len(all)-1][1] + ")"
}

var logged = regexp.MustCompile(`(?m)^ +[a-z0-9_]+\.go:[0-9]+: (.*)$`)

// said returns the output of a test of the first level; of "": the rest.
func (x *result) said(test string) string {
	if x.output[test] == nil {
		return ""
	}
	return x.output[test].String()
}

// early reports whether a failed package did not compile, or ended before its tests.
func (x *result) early() bool { return !x.finished || len(x.failed) == 0 }

// shown returns the names of the tests whose output says why a package has failed.
func (x *result) shown() []string {
	if x.early() {
		return append(slices.Clone(x.failed), "")
	}
	return x.failed
}

// judge says what the end of a package means.
func (r *report) judge(x *result, e event) {
	r.passed += x.passed
	r.skipped += x.skipped
	path := x.pkg.ImportPath
	switch x.bad = e.Action == "fail"; {
	case x.bad:
		x.line = fmt.Sprintf("FAIL\t%s\t%d of %d tests failed", path, len(x.failed), x.passed+len(x.failed))
	case x.passed == 0:
		x.line = fmt.Sprintf("-\t%s\tno tests", path)
	default:
		x.line = fmt.Sprintf("ok\t%s\t%d tests", path, x.passed)
	}
	if r.seconds {
		x.line += fmt.Sprintf("\t%.1f s", e.Elapsed)
	}
	if x.bad && x.early() {
		x.line += "\tit did not compile, or ended early"
		r.final = append(r.final, path)
		return
	}
	for _, name := range x.failed {
		f := failure{path, name}
		// To run a test again is no answer to a race.
		if x.pkg.tests[name].pure || strings.Contains(x.said(name), "WARNING: DATA RACE") {
			r.final = append(r.final, f.String())
		} else {
			r.retry = append(r.retry, f)
		}
	}
}

// print prints the packages that have ended, in their order.
func (r *report) print(out io.Writer) {
	for ; r.next < len(r.order) && r.order[r.next].done; r.next++ {
		x := r.order[r.next]
		fmt.Fprintln(out, x.line)
		slices.Sort(x.skips) // tests that run beside each other end in any order
		for _, line := range x.skips {
			fmt.Fprintln(out, line)
		}
		for _, name := range x.shown() {
			if x.bad {
				fmt.Fprint(out, x.said(name))
			}
		}
	}
}

// most is the largest number of failed tests that run again. More of them are no matter of a busy machine.
const most = 10

// again returns the failures that may be those of a busy machine.
func (r *report) again() []failure {
	if len(r.retry) <= most {
		return r.retry
	}
	for _, f := range r.retry {
		r.final = append(r.final, f.String())
	}
	return nil
}

var unusual = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// write writes a file for each failed test, and one for each package that failed otherwise.
func (r *report) write(dir string) error {
	revision, _ := exec.Command("git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	for _, x := range r.order {
		if !x.bad {
			continue
		}
		for _, test := range x.shown() {
			f := failure{x.pkg.ImportPath, test}
			name := unusual.ReplaceAllString(strings.TrimPrefix(f.String(), "github.com/hybridlimit/hybridlimit/"), "_")
			file, err := os.CreateTemp(dir, name+".*.txt")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(file, "revision: %stest: %s\nseed: %s\n\n%s",
				revision, f, os.Getenv("HYBRIDLIMIT_SEED"), x.said(test))
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
			fmt.Println("written:", filepath.Base(file.Name()))
		}
	}
	return nil
}
