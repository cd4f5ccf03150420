package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulePath is the root module. Packages are named relative to it; the root package is ".".
const modulePath = "github.com/hybridlimit/hybridlimit"

// source is one Go file.
type source struct {
	path string // relative to the module root
	dir  string // the package: "." or "internal/test/house"
	test bool
	text []byte
	fset *token.FileSet
	tree *ast.File
}

// at returns "path:line" of a position in the file.
func (s source) at(p token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(p).Line)
}

// load reads each Go file of the module rooted at fsys, with any build tags. It skips generators ("//go:build ignore") and the
// files that the go command itself leaves out (testdata, vendor, names that start with "." or "_", nested modules).
func load(fsys fs.FS) ([]source, error) {
	var all []source
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		hidden := p != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_"))
		if d.IsDir() {
			if hidden || name == "testdata" || name == "vendor" || p != "." && exists(fsys, path.Join(p, "go.mod")) {
				return fs.SkipDir
			}
			return nil
		}
		if hidden || path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		if !ignored(tree) {
			test := strings.HasSuffix(name, "_test.go")
			all = append(all, source{path: p, dir: path.Dir(p), test: test, text: text, fset: fset, tree: tree})
		}
		return nil
	})
	return all, err
}

func exists(fsys fs.FS, p string) bool {
	_, err := fs.Stat(fsys, p)
	return err == nil
}

// ignored reports whether a file is a generator, which "//go:build ignore" keeps out of every build.
func ignored(f *ast.File) bool {
	for _, group := range f.Comments {
		if group.Pos() > f.Package {
			break
		}
		for _, c := range group.List {
			if !constraint.IsGoBuild(c.Text) {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			if err == nil && expr.String() == "ignore" {
				return true
			}
		}
	}
	return false
}

// edge is one import: a file of package from imports to. to is relative if it is in this module ("." is the root).
type edge struct {
	from   string
	to     string
	inside bool // to is a package of this module
	test   bool // the importing file is a _test.go file
	at     string
}

func edges(sources []source) []edge {
	var out []edge
	for _, s := range sources {
		for _, imp := range s.tree.Imports {
			to := importPath(imp)
			e := edge{from: s.dir, to: to, test: s.test, at: s.at(imp.Pos())}
			if to == modulePath {
				e.to, e.inside = ".", true
			} else if rel, ok := strings.CutPrefix(to, modulePath+"/"); ok {
				e.to, e.inside = rel, true
			}
			out = append(out, e)
		}
	}
	return out
}

// importPath returns an import's path without its quotes. The parser has already refused an import that is not a string.
func importPath(imp *ast.ImportSpec) string {
	p, _ := strconv.Unquote(imp.Path.Value)
	return p
}

// packages returns the directories that have Go files, sorted.
func packages(sources []source) []string {
	var dirs []string
	for _, s := range sources {
		dirs = append(dirs, s.dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// moduleRoot returns the directory of the root go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no go.mod in %s: has internal/test/house moved?", dir)
	}
	return dir
}

// loadModule reads the module of this package.
func loadModule(t *testing.T) []source {
	t.Helper()
	sources, err := load(os.DirFS(moduleRoot(t)))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(packages(sources), "internal/test/house") {
		t.Fatal("the module was read, but this package was not found: the checks would check nothing")
	}
	return sources
}

// report fails t with one line per finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// expect fails t unless there are exactly as many findings as words, and each finding contains its word.
func expect(t *testing.T, findings []string, words ...string) {
	t.Helper()
	if len(findings) != len(words) {
		t.Fatalf("got %d findings, want %d:\n%s", len(findings), len(words), strings.Join(findings, "\n"))
	}
	for i, w := range words {
		if !strings.Contains(findings[i], w) {
			t.Errorf("finding %d is %q, want it to mention %q", i, findings[i], w)
		}
	}
}
