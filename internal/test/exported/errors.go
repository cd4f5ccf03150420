// Package exported lists the exported errors of packages from their source, for the tests that decide the answer to
// each error.
package exported

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Errors returns the exported errors in the source of packages: variables named Err..., and types named ...Error. Each
// has the name of its package.
func Errors(dirs ...string) (found []string, err error) {
	fset := token.NewFileSet()
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s has no Go files (%w)", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			p, err := doc.NewFromFiles(fset, []*ast.File{file}, dir, doc.AllDecls)
			if err != nil {
				return nil, err
			}
			var names []string
			for _, v := range p.Vars {
				names = append(names, v.Names...)
			}
			for _, t := range p.Types {
				names = append(names, t.Name)
				for _, v := range t.Vars {
					names = append(names, v.Names...)
				}
			}
			for _, id := range names {
				if strings.HasPrefix(id, "Err") || ast.IsExported(id) && strings.HasSuffix(id, "Error") {
					found = append(found, file.Name.Name+"."+id)
				}
			}
		}
	}
	slices.Sort(found)
	return found, nil
}
