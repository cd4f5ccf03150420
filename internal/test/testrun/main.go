package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	var s settings
	flag.StringVar(&s.concurrent, "concurrent", "with", "the tests in *_concurrent_test.go: `with|without|only`")
	flag.BoolVar(&s.seconds, "seconds", false, "print the seconds of each package")
	flag.StringVar(&s.failures, "failures", "", "write a file for each failed test into this `folder`, and run none again")
	flag.Func("until", "end at this Unix `time`", func(text string) error {
		seconds, err := strconv.ParseInt(text, 10, 64)
		s.until = time.Unix(seconds, 0)
		return err
	})
	flag.Parse()
	status, err := run(s, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		status = 2
	}
	os.Exit(status)
}

// settings are the flags.
type settings struct {
	concurrent, failures string
	seconds              bool
	until                time.Time // the zero time: no end
}

// run returns the exit status: 0, 1 for a failure, 3 if until came first.
func run(s settings, args []string) (int, error) {
	if len(args) < 2 {
		return 0, fmt.Errorf("usage: testrun [flags] DIR [go test flags] packages")
	}
	dir, args := args[0], args[1:]
	flags, patterns := split(args)
	pkgs, err := list(dir, flags, patterns)
	if err == nil {
		pkgs, flags, err = choose(s.concurrent, pkgs, flags)
	}
	if err != nil {
		return 0, err
	}
	if len(pkgs) == 0 {
		fmt.Println("no packages with such tests")
		return 0, nil
	}
	r := newReport(pkgs, s.seconds)
	if err := r.test(dir, flags, s.until); err != nil {
		return 0, err
	}
	var alone []string
	if s.failures != "" {
		if err := r.write(s.failures); err != nil {
			return 0, err
		}
	}
	for _, f := range r.again() {
		if s.failures == "" && passesAlone(dir, flags, f) {
			alone = append(alone, f.String())
		} else {
			r.final = append(r.final, f.String())
		}
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", r.passed, len(r.final), r.skipped)
	for _, name := range r.final {
		fmt.Println("FAILED:", name)
	}
	if len(alone) > 0 {
		if err := remember(alone); err != nil {
			return 0, err
		}
		fmt.Println("passed only alone:", strings.Join(alone, ", "))
	}
	switch {
	case len(r.final) > 0:
		return 1, nil
	case r.cut:
		fmt.Println("cut: the time is over")
		return 3, nil
	}
	return 0, nil
}

// split separates the flags of go test, all written as -name or -name=value, from the packages.
func split(args []string) (flags, patterns []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			flags = append(flags, a)
		} else {
			patterns = append(patterns, a)
		}
	}
	return flags, patterns
}

// command returns a go command in dir.
func command(dir string, args ...string) *exec.Cmd {
	c := exec.Command("go", args...)
	c.Dir, c.Stderr = dir, os.Stderr
	return c
}

// remember appends names to the file TESTRUN_ALONE.
func remember(names []string) error {
	file := os.Getenv("TESTRUN_ALONE")
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, strings.Join(names, "\n"))
	return errors.Join(err, f.Close())
}

// times is how often a failed test must pass alone.
const times = 3

// passesAlone runs one test again.
func passesAlone(dir string, flags []string, f failure) bool {
	flags = slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		return strings.HasPrefix(flag, "-run=") || strings.HasPrefix(flag, "-skip=")
	})
	args := append([]string{"test"}, flags...)
	args = append(args, "-count=1", "-run=^"+f.test+"$", f.pkg)
	for n := range times {
		fmt.Printf("\nagain, alone (%d of %d): %s\n", n+1, times, f)
		c := command(dir, args...)
		c.Stdout = os.Stdout
		if c.Run() != nil {
			return false
		}
	}
	return true
}
