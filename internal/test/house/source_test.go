package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// maxLines is the length above which a file surely has more than one concept.
const maxLines = 500

// arithmetic packages compute from a time that is an argument.
var arithmetic = []string{"internal/account", "internal/algo", "internal/wire", "lua"}

// clock lists the functions of package time that read a clock or wait for one.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

func TestPackagesHaveComments(t *testing.T)       { report(t, checkPackageComments(loadModule(t))) }
func TestFilesAreShort(t *testing.T)              { report(t, checkLength(loadModule(t))) }
func TestArithmeticReadsNoClock(t *testing.T)     { report(t, checkClock(loadModule(t))) }
func TestExportedNamesAreDocumented(t *testing.T) { report(t, checkDocs(loadModule(t))) }

// checkPackageComments requires one comment per package that starts as godoc expects ("Package x"; any text for a program). A
// directory that has only tests needs none.
func checkPackageComments(sources []source) []string {
	var bad []string
	for _, pkg := range packages(sources) {
		name, said := "", false
		for _, s := range sources {
			if s.dir != pkg || s.test {
				continue
			}
			name = s.tree.Name.Name
			text := s.tree.Doc.Text()
			said = said || strings.HasPrefix(text, "Package "+name+" ") || name == "main" && text != ""
		}
		if name != "" && !said {
			bad = append(bad, fmt.Sprintf("package %s (%s) has no package comment", pkg, name))
		}
	}
	return bad
}

func TestMissingPackageCommentsAreReported(t *testing.T) {
	expect(t, checkPackageComments(parse(t, fstest.MapFS{
		"a/a.go":           {Data: []byte("package a\n")},
		"b/doc.go":         {Data: []byte("// Package b is fine.\npackage b\n")},
		"b/b.go":           {Data: []byte("package b\n")},
		"c/c.go":           {Data: []byte("// Copyright of somebody.\n\npackage c\n")},
		"d/d.go":           {Data: []byte("// Package wrong is another.\npackage d\n")},
		"e/e.go":           {Data: []byte("//go:build linux\npackage e\n")},
		"f/f_test.go":      {Data: []byte("package f\n")},
		"g/g_test.go":      {Data: []byte("// Package g is described where nobody looks.\npackage g\n")},
		"g/g.go":           {Data: []byte("package g\n")},
		"examples/x/x.go":  {Data: []byte("package main\n")},
		"examples/y/y.go":  {Data: []byte("// Y shows something.\npackage main\n")},
		"internal/z/zz.go": {Data: []byte("package z\n")},
	})), "package a ", "package c ", "package d ", "package e ", "package examples/x ", "package g ", "package internal/z ")
}

// checkLength counts the lines of each file of a product package, tests included.
func checkLength(sources []source) []string {
	var bad []string
	for _, s := range sources {
		lines := bytes.Count(s.text, []byte("\n"))
		if isProduct(s.dir) && lines > maxLines {
			bad = append(bad, fmt.Sprintf("%s has %d lines, the limit is %d: it holds more than one concept", s.path, lines, maxLines))
		}
	}
	return bad
}

func TestLongFilesAreReported(t *testing.T) {
	long := []byte("package p\n" + strings.Repeat("// x\n", maxLines))
	expect(t, checkLength(parse(t, fstest.MapFS{
		"hybrid/long.go":              {Data: long},
		"local/long_test.go":          {Data: long},
		"lua/short.go":                {Data: long[:len(long)-len("// x\n")]},
		"internal/test/fleet/long.go": {Data: long},
	})), "hybrid/long.go has 501 lines", "local/long_test.go")
}

// checkClock returns the uses of package time's clocks in the arithmetic packages, under any name of the import. A function
// that is passed on without a call (now: time.Now) counts too. Types such as time.Duration do not count.
func checkClock(sources []source) []string {
	var bad []string
	for _, s := range sources {
		if s.test || !slices.Contains(arithmetic, s.dir) {
			continue
		}
		name := timeName(s.tree)
		if name == "." {
			bad = append(bad, fmt.Sprintf("%s: a dot import of time hides whether a clock is read", s.path))
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && name != "" && x.Name == name && slices.Contains(clock, sel.Sel.Name) {
				bad = append(bad, fmt.Sprintf("%s: time.%s in arithmetic: take the time as an argument", s.at(sel.Pos()), sel.Sel.Name))
			}
			return true
		})
	}
	return bad
}

// timeName returns the name under which a file imports package time, "" if it does not.
func timeName(f *ast.File) string {
	for _, imp := range f.Imports {
		if importPath(imp) != "time" {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name
		}
		return "time"
	}
	return ""
}

func TestClocksInArithmeticAreReported(t *testing.T) {
	const reads = "\nvar now = time.Now\n\nfunc age(t time.Time) time.Duration { return time.Since(t) }\n"
	expect(t, checkClock(parse(t, fstest.MapFS{
		"internal/algo/a.go":      {Data: []byte("package algo\nimport \"time\"\n" + reads)},
		"internal/algo/b.go":      {Data: []byte("package algo\nimport clk \"time\"\nvar _ = clk.Now()\n")},
		"internal/algo/c.go":      {Data: []byte("package algo\nimport . \"time\"\nvar _ = Now()\n")},
		"internal/algo/d.go":      {Data: []byte("package algo\nimport \"time\"\nconst tick = 5 * time.Millisecond\n")},
		"internal/algo/e.go":      {Data: []byte("package algo\nvar time struct{ Now func() int }\nvar _ = time.Now()\n")},
		"internal/algo/a_test.go": {Data: []byte("package algo\nimport \"time\"\n" + reads)},
		"local/a.go":              {Data: []byte("package local\nimport \"time\"\n" + reads)},
	})), "a.go:4: time.Now", "a.go:6: time.Since", "b.go:3: time.Now", "c.go: a dot import")
}

// parse loads a synthetic module.
func parse(t *testing.T, tree fstest.MapFS) []source {
	t.Helper()
	sources, err := load(tree)
	if err != nil {
		t.Fatal(err)
	}
	return sources
}
