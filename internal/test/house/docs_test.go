package house

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
	"testing/fstest"
)

// checkDocs returns the exported names of product packages that have no comment: functions, methods of exported types, types,
// the fields and methods inside them, constants and variables. A comment at the end of the line is enough for fields and
// values. A comment above a parenthesised group is enough for the values in it. In the rooms of one package (hybrid/internal/...) only
// functions and types need one: their fields have a name outside only for the package next door.
func checkDocs(sources []source) []string {
	var bad []string
	promoted := promotionsOf(sources)
	for _, s := range sources {
		if s.test || !isProduct(s.dir) {
			continue
		}
		room := strings.Contains(s.dir, "/internal/")
		missing := func(id *ast.Ident, what string) {
			if room && what != "function" && what != "type" {
				return
			}
			bad = append(bad, fmt.Sprintf("%s: exported %s %s has no doc comment", s.at(id.Pos()), what, id.Name))
		}
		for _, decl := range s.tree.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && len(promoted.receivers(s.dir, d)) > 0 && empty(d.Doc) {
					missing(d.Name, "function")
				}
			case *ast.GenDecl:
				checkGroup(d, missing)
			}
		}
	}
	return bad
}

// checkGroup checks one const, var or type declaration.
func checkGroup(d *ast.GenDecl, missing func(id *ast.Ident, what string)) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if !spec.Name.IsExported() {
				continue
			}
			// Without parentheses the parser attaches the comment to the declaration.
			if empty(spec.Doc) && (d.Lparen.IsValid() || empty(d.Doc)) {
				missing(spec.Name, "type")
			}
			checkFields(spec.Type, missing)
		case *ast.ValueSpec:
			if !empty(spec.Doc) || !empty(spec.Comment) || !empty(d.Doc) {
				continue
			}
			for _, id := range spec.Names {
				if id.IsExported() {
					missing(id, d.Tok.String())
				}
			}
		}
	}
}

// checkFields checks the fields of structs and the methods of interfaces, at any depth inside a type. Embedded ones are
// documented where they are declared.
func checkFields(typ ast.Expr, missing func(id *ast.Ident, what string)) {
	ast.Inspect(typ, func(n ast.Node) bool {
		var fields *ast.FieldList
		what := "field"
		switch n := n.(type) {
		case *ast.FuncType:
			return false // parameters
		case *ast.StructType:
			fields = n.Fields
		case *ast.InterfaceType:
			fields, what = n.Methods, "method"
		default:
			return true
		}
		for _, f := range fields.List {
			if !empty(f.Doc) || !empty(f.Comment) {
				continue
			}
			for _, id := range f.Names {
				if id.IsExported() {
					missing(id, what)
				}
			}
		}
		return true
	})
}

// empty reports whether a comment has no text: it is missing, or has only directives.
func empty(c *ast.CommentGroup) bool { return c.Text() == "" }

func TestUndocumentedNamesAreReported(t *testing.T) {
	const text = `package hybrid

type A struct {
	B int
	C int // C is documented here.
	// D is documented above.
	D struct{ E int }
	f int
}

func F()     {}
func (A) G() {}

func (*H[K]) I() {}

//go:noinline
func J() {}

// H is documented.
type H[K any] interface{ L() }

const M = 1

var (
	N int
	O int // O is documented here.
)

type (
	// P is documented.
	P func(Q int)
	R int
)
`
	expect(t, checkDocs(parse(t, fstest.MapFS{"hybrid/a.go": {Data: []byte(text)}})),
		"a.go:3: exported type A", "exported field B", "exported field E", "exported function F", "exported function G",
		"exported function I", "exported function J", "exported method L", "exported const M", "exported var N", "exported type R")
}

func TestDocumentedNamesAreNotReported(t *testing.T) {
	const text = `// Package hybrid is documented.
package hybrid

// The things there are.
const (
	A = iota
	B
)

// C is a type.
type C struct {
	sync.Mutex
	d int
}

// E is a method.
func (c *C) E() {}

type f struct{ G int }

func (f) H() {}

func i() {}
`
	report(t, checkDocs(parse(t, fstest.MapFS{
		"hybrid/a.go":              {Data: []byte(text)},
		"hybrid/a_test.go":         {Data: []byte("package hybrid\n\nfunc Exported() {}\n")},
		"internal/test/fleet/a.go": {Data: []byte("package fleet\n\nfunc Exported() {}\n")},
	})))
}
