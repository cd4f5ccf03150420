// Package exported lists the exported errors of packages from their source, for the tests that decide the answer to
// each error.
package exported

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Errors returns the exported errors in the source of packages: variables named Err..., and types named ...Error. Each
// has the name of its package.
func Errors(dirs ...string) (found []string, err error) {
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s has no Go files (%w)", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			for _, id := range declared(file) {
				if strings.HasPrefix(id, "Err") || ast.IsExported(id) && strings.HasSuffix(id, "Error") {
					found = append(found, file.Name.Name+"."+id)
				}
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// declared returns the names of a file's variables and types.
func declared(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR && g.Tok != token.TYPE {
			continue
		}
		for _, spec := range g.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, id := range s.Names {
					names = append(names, id.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			}
		}
	}
	return names
}
