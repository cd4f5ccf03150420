package house

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
	"testing/fstest"
)

// promotions has, for each package and each unexported type, the exported types that embed it, at any depth. They have its exported
// methods.
type promotions map[string]map[string][]string

func promotionsOf(sources []source) promotions {
	embeds := promotions{} // the types that embed a type directly
	for _, s := range sources {
		if s.test {
			continue
		}
		for name, fields := range embedded(s.tree) {
			for _, of := range fields {
				if embeds[s.dir] == nil {
					embeds[s.dir] = map[string][]string{}
				}
				embeds[s.dir][of] = append(embeds[s.dir][of], name)
			}
		}
	}
	out := promotions{}
	for dir, types := range embeds {
		out[dir] = map[string][]string{}
		for of := range types {
			var exported []string
			for todo := []string{of}; len(todo) > 0; todo = todo[1:] {
				for _, by := range types[todo[0]] {
					if token.IsExported(by) {
						exported = append(exported, by)
					} else {
						todo = append(todo, by)
					}
				}
			}
			slices.Sort(exported)
			out[dir][of] = slices.Compact(exported)
		}
	}
	return out
}

// embedded returns the unexported types that each struct of a file embeds.
func embedded(file *ast.File) map[string][]string {
	out := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if st, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range st.Fields.List {
				if name := typeName(f.Type); len(f.Names) == 0 && name != "" && !token.IsExported(name) {
					out[spec.Name.Name] = append(out[spec.Name.Name], name)
				}
			}
		}
		return true
	})
	return out
}

// receivers returns the exported types of the package in dir that have the method d.
func (p promotions) receivers(dir string, d *ast.FuncDecl) []string {
	of := receiver(d)
	if of == "" || token.IsExported(of) {
		return []string{of}
	}
	return p[dir][of]
}

func TestPromotedMethodsAreFound(t *testing.T) {
	sources := parse(t, fstest.MapFS{"hybrid/a.go": {Data: []byte(`// Package hybrid is documented.
package hybrid

import "context"

type base struct{}

func (l *base) Set(ctx context.Context) {}

type family struct{ *base }

// Limiter is documented.
type Limiter struct{ *family }

// Other is documented.
type Other struct{ base }
`)}})
	expect(t, surface(sources), "hybrid.Limiter", "hybrid.Limiter.Set", "hybrid.Other", "hybrid.Other.Set")
	expect(t, checkDocs(sources), "function Set has no doc comment")
	if want := "hybrid: 0 of 2 examples of Limiter_Set"; !slices.Contains(checkExamples(sources), want) {
		t.Errorf("not found: %s", want)
	}
}
