package house

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	// named matches the name of a test on a page or in a comment.
	named = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz|Example)[A-Z]\w*`)
	// declared matches the declaration of a test.
	declared = regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?((?:Test|Benchmark|Fuzz|Example)[A-Z]\w*)\(`)
)

// TestNamedTestsExist: a claim has no value if the test that it names does not exist.
func TestNamedTestsExist(t *testing.T) {
	bad, err := checkNamed(os.DirFS(moduleRoot(t)))
	if err != nil {
		t.Fatal(err)
	}
	report(t, bad)
}

// checkNamed returns the tests that pages and package comments name and that no module has. The start of a name is enough, as
// for go test -run.
func checkNamed(fsys fs.FS) (bad []string, err error) {
	pages, names := map[string]string{}, "\n"
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "vendor"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(p) != ".md" && path.Ext(p) != ".go":
			return nil
		}
		text, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		switch {
		case strings.HasSuffix(p, "_test.go"):
			for _, m := range declared.FindAllSubmatch(text, -1) {
				names += string(m[1]) + "\n"
			}
		case path.Ext(p) == ".md":
			pages[p] = string(text)
		default:
			pages[p] = comments(string(text))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, p := range slices.Sorted(maps.Keys(pages)) {
		for _, name := range named.FindAllString(pages[p], -1) {
			if !strings.Contains(names, "\n"+name) {
				bad = append(bad, fmt.Sprintf("%s names %s, which is no test", p, name))
			}
		}
	}
	return bad, nil
}

// comments returns the lines of a Go file that have only a comment.
func comments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "//") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestMissingTestsAreReported(t *testing.T) {
	bad, err := checkNamed(fstest.MapFS{
		"README.md":           {Data: []byte("TestHere, TestGo (by its begin) and `go test -run TestGone`, `TestThere`; Testing, ExampleOf.")},
		"docs/a.md":           {Data: []byte("BenchmarkNothing and FuzzSomething")},
		"a/a.go":              {Data: []byte("// Package a: see TestNever.\npackage a\n\nvar TestCode = 1 // TestTail\n")},
		"a/a_test.go":         {Data: []byte("package a\n\n// TestComment is none.\nfunc TestHere(t *testing.T) {}\n\nfunc FuzzSomething(f *testing.F) {}\n")},
		"b/b_test.go":         {Data: []byte("func TestGoes(t *testing.T) {}\nfunc ExampleOf_this() {}\n")},
		"b/go.mod":            {Data: []byte("module b\n")},
		"b/testdata/c.md":     {Data: []byte("TestData")},
		".hidden/d.md":        {Data: []byte("TestHidden")},
		"bench/x/y_test.go":   {Data: []byte("func TestThere(t *testing.T) {}\n")},
		"b/testdata/_test.go": {Data: []byte("func TestGone(t *testing.T) {}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, bad, "README.md names TestGone", "a/a.go names TestNever", "docs/a.md names BenchmarkNothing")
}
