package house

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write testdata/surface.txt")

// surfaceFile lists every exported name of the packages that applications import.
const surfaceFile = "testdata/surface.txt"

// notForApplications lists the product packages outside internal/ whose names do not count: their signatures need internal
// types.
var notForApplications = []string{"sync"}

// TestSurfaceGrowsOnPurpose compares the exported surface with the committed list, so that each added or removed name is a
// decision: go test ./internal/test/house -run Surface -update
func TestSurfaceGrowsOnPurpose(t *testing.T) {
	names := surface(loadModule(t))
	text := strings.Join(names, "\n") + "\n"
	if *update {
		if err := os.WriteFile(surfaceFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(surfaceFile)
	if err != nil {
		t.Fatal(err)
	}
	report(t, differences(strings.Split(strings.TrimSpace(string(want)), "\n"), names))
}

// differences returns one line for each new name and each removed name.
func differences(listed, found []string) (bad []string) {
	for _, name := range found {
		if !slices.Contains(listed, name) {
			bad = append(bad, name+" is exported, and not in "+surfaceFile)
		}
	}
	for _, name := range listed {
		if !slices.Contains(found, name) {
			bad = append(bad, name+" is in "+surfaceFile+", and not exported")
		}
	}
	return bad
}

// surface lists the exported names of public product packages: package-level names, methods of exported types, and the fields
// and methods within exported structs and interfaces, those of embedded types included.
func surface(sources []source) []string {
	var names []string
	promoted := promotionsOf(sources)
	for _, s := range sources {
		if s.test || !isProduct(s.dir) || strings.Contains(s.dir, "internal/") || slices.Contains(notForApplications, s.dir) {
			continue
		}
		pkg := s.tree.Name.Name
		add := func(parts ...string) { names = append(names, strings.Join(append([]string{pkg}, parts...), ".")) }
		for _, decl := range s.tree.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() {
					continue
				}
				for _, recv := range promoted.receivers(s.dir, d) {
					if recv == "" {
						add(d.Name.Name)
					} else {
						add(recv, d.Name.Name)
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							if id.IsExported() {
								add(id.Name)
							}
						}
					case *ast.TypeSpec:
						if spec.Name.IsExported() {
							add(spec.Name.Name)
							for _, m := range members(spec.Type) {
								add(spec.Name.Name, m)
							}
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// typeName returns the last name in a type's expression.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// members returns the exported fields of a struct, or the methods of an interface.
func members(t ast.Expr) (names []string) {
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		for _, id := range f.Names {
			if id.IsExported() {
				names = append(names, id.Name)
			}
		}
		if len(f.Names) == 0 && token.IsExported(typeName(f.Type)) {
			names = append(names, typeName(f.Type))
		}
	}
	return names
}

func TestNewNamesAreReported(t *testing.T) {
	const text = `// Package hybrid is documented.
package hybrid

type A struct {
	B, c int
	sync.Mutex
}

func (a *A) D() {}

type e struct{ F int }

func (e) G() {}

type H interface{ I() }

const J, k = 1, 2

func L[T any]() {}
`
	found := surface(parse(t, fstest.MapFS{
		"hybrid/a.go":        {Data: []byte(text)},
		"internal/algo/a.go": {Data: []byte("package algo\n\nfunc M() {}\n")},
		"sync/a.go":          {Data: []byte("package ratesync\n\nfunc N() {}\n")},
		"hybrid/a_test.go":   {Data: []byte("package hybrid\n\nfunc O() {}\n")},
	}))
	if got, want := fmt.Sprint(found), "[hybrid.A hybrid.A.B hybrid.A.D hybrid.A.Mutex hybrid.H hybrid.H.I hybrid.J hybrid.L]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	expect(t, differences([]string{"hybrid.A", "hybrid.Gone"}, []string{"hybrid.A", "hybrid.New"}), "hybrid.New is exported", "hybrid.Gone is in")
}
