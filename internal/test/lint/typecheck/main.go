// Command typecheck finds what does not compile, without compiling it:
//
//	typecheck -root ROOT -pages MODULE    the Go blocks of README, CONTRIBUTING and docs/*.md, with the requirements of MODULE
//	typecheck -root ROOT MODULE...        all packages of nested modules, with their tests
//
// Packages outside ROOT are read for their declarations only. So a module with hundreds of dependencies takes seconds
// here, and minutes when it is compiled and linked. The modules whose tests are left to make search are checked in this
// way by the gate.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	root := flag.String("root", ".", "the `folder` of the project")
	pages := flag.Bool("pages", false, "check the Go blocks of the pages instead of packages")
	flag.Parse()
	found, err := check(*root, *pages, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
		os.Exit(2)
	}
	for _, line := range found {
		fmt.Println(line)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// check returns what is wrong, a line each.
func check(root string, pages bool, modules []string) (found []string, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("no modules are named")
	}
	for _, dir := range modules {
		var n int
		var bad []string
		if pages {
			n, bad, err = checkPages(root, dir)
		} else {
			n, bad, err = checkModule(root, dir)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if n == 0 {
			return nil, fmt.Errorf("%s: nothing to check", dir)
		}
		found = append(found, bad...)
	}
	return found, nil
}

// checkModule returns the number of packages of a module, and their errors.
func checkModule(root, dir string) (n int, found []string, err error) {
	all, err := load(root, dir, nil, "./...")
	if err != nil {
		return 0, nil, err
	}
	for _, p := range all {
		if strings.HasSuffix(p.ID, ".test") {
			continue // its main file is the go command's
		}
		n++
		for _, e := range p.Errors {
			found = append(found, e.Error())
		}
	}
	return n, found, nil
}

// load type-checks the packages that match patterns in the module at dir, with their tests. overlay has files that are
// not on the disk.
func load(root, dir string, overlay map[string][]byte, patterns ...string) ([]*packages.Package, error) {
	return packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes | packages.NeedModule,
		Dir:        dir,
		Env:        append(os.Environ(), "CGO_ENABLED=0"), // files of C would have to be compiled
		BuildFlags: []string{"-tags=search"},
		Tests:      true,
		Overlay:    overlay,
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution|parser.AllErrors)
			rel, foreign := filepath.Rel(root, name)
			if f == nil || foreign == nil && filepath.IsLocal(rel) {
				return f, err
			}
			// Functions of other projects have no bodies. The errors that this makes are those of a dependency, and are
			// not reported.
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					fn.Body = nil
				}
			}
			return f, err
		},
	}, patterns...)
}
