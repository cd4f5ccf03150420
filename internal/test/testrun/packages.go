package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pkg is a package with its tests.
type pkg struct {
	Dir, ImportPath           string
	TestGoFiles, XTestGoFiles []string

	tests map[string]test // by the name of the function
}

// test is one function of a test file.
type test struct{ pure, concurrent bool }

// worldly has the packages that a test needs for a server, a network, another process or a clock that goroutines share.
// A path that ends in / stands for all below it.
var worldly = []string{
	"testing/synctest", "net", "net/", "os/exec", "os/signal", "sync", "google.golang.org/grpc", "google.golang.org/grpc/",
	"github.com/redis/go-redis/", "github.com/alicebob/miniredis/",
	"github.com/hybridlimit/hybridlimit/internal/test/redistest", "github.com/hybridlimit/hybridlimit/internal/test/fleet",
}

// list returns the packages with their tests, in the order of the patterns.
func list(dir string, flags, patterns []string) ([]*pkg, error) {
	args := []string{"list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles"}
	for _, f := range flags {
		if strings.HasPrefix(f, "-tags") || f == "-race" {
			args = append(args, f)
		}
	}
	out, err := command(dir, append(args, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	var all []*pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &pkg{tests: map[string]test{}}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		for _, f := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			if err := p.read(f); err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
}

// read adds the tests of a file.
func (p *pkg) read(name string) error {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t := test{pure: true, concurrent: strings.HasSuffix(name, "_concurrent_test.go")}
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		for _, w := range worldly {
			if path == w || strings.HasSuffix(w, "/") && strings.HasPrefix(path, w) {
				t.pure = false
			}
		}
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTest.MatchString(fn.Name.Name) {
			p.tests[fn.Name.Name] = t
		}
	}
	return nil
}

var isTest = regexp.MustCompile("^(Test|Example|Fuzz)")

// choose applies -concurrent: it returns the packages that have tests to run, and the flags that choose these tests. A
// -run or -skip of the caller would be lost, so it is an error.
func choose(concurrent string, pkgs []*pkg, flags []string) ([]*pkg, []string, error) {
	if concurrent == "with" {
		return pkgs, flags, nil
	}
	if concurrent != "without" && concurrent != "only" {
		return nil, nil, fmt.Errorf("-concurrent=%s must be with, without or only", concurrent)
	}
	for _, f := range flags {
		if strings.HasPrefix(f, "-run") || strings.HasPrefix(f, "-skip") {
			return nil, nil, fmt.Errorf("%s together with -concurrent=%s", f, concurrent)
		}
	}
	var names []string
	var chosen []*pkg
	for _, p := range pkgs {
		n := len(names)
		for name, t := range p.tests {
			if t.concurrent {
				names = append(names, name)
			}
		}
		if concurrent == "without" || len(names) > n {
			chosen = append(chosen, p)
		}
	}
	if len(names) == 0 {
		return chosen, flags, nil
	}
	// One expression is for all packages, so a name of a concurrent test must not be that of another test elsewhere.
	for _, p := range chosen {
		for name, t := range p.tests {
			if !t.concurrent && slices.Contains(names, name) {
				return nil, nil, fmt.Errorf("%s: %s has the name of a concurrent test in another package: rename one", p.ImportPath, name)
			}
		}
	}
	slices.Sort(names)
	expression := "^(" + strings.Join(slices.Compact(names), "|") + ")$"
	which := map[string]string{"only": "-run=", "without": "-skip="}[concurrent]
	return chosen, append(slices.Clone(flags), which+expression), nil
}
