package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
	honnef "honnef.co/go/tools/unused"
)

// unused reports U1000. The analyzer of staticcheck only collects, because staticcheck joins the results of a package
// with and without its tests. The go command analyzes a package together with the tests inside it, so no joining is
// necessary.
var unused = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "report code that is not used (staticcheck's U1000)",
	Requires: []*analysis.Analyzer{honnef.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, o := range pass.ResultOf[honnef.Analyzer.Analyzer].(honnef.Result).Unused {
			pass.Report(analysis.Diagnostic{Pos: position(pass, o.Position), Message: o.Kind + " " + o.Name + " is unused (U1000)"})
		}
		return nil, nil
	},
}

// position returns the place of p in the files of a pass.
func position(pass *analysis.Pass, p token.Position) token.Pos {
	for _, f := range pass.Files {
		if file := pass.Fset.File(f.FileStart); file.Name() == p.Filename {
			return file.Pos(p.Offset)
		}
	}
	return token.NoPos
}

// inProduct leaves tests out: a test may insist on the very error that was promised.
func inProduct(a *analysis.Analyzer) *analysis.Analyzer {
	return filtered(a, func(pass *analysis.Pass, d analysis.Diagnostic) bool {
		return !strings.HasSuffix(pass.Fset.Position(d.Pos).Filename, "_test.go")
	})
}

// heed lets an analyzer heed comments with nolint.
func heed(a *analysis.Analyzer) {
	filtered(a, func(pass *analysis.Pass, d analysis.Diagnostic) bool { return !excepted(pass, a.Name, d.Pos) })
}

// filtered lets an analyzer report only what keep accepts.
func filtered(a *analysis.Analyzer, keep func(*analysis.Pass, analysis.Diagnostic) bool) *analysis.Analyzer {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		narrow := *pass
		narrow.Report = func(d analysis.Diagnostic) {
			if keep(pass, d) {
				pass.Report(d)
			}
		}
		return run(&narrow)
	}
	return a
}

var nolint = regexp.MustCompile(`^//nolint:([a-zA-Z0-9,]+) // \S`)

// excepted reports whether a nolint comment with a reason names the analyzer, on the line of pos or on the line above.
func excepted(pass *analysis.Pass, analyzer string, pos token.Pos) bool {
	at := pass.Fset.Position(pos)
	for _, f := range pass.Files {
		if pass.Fset.Position(f.FileStart).Filename == at.Filename {
			return names(pass.Fset, f, at.Line, analyzer)
		}
	}
	return false
}

func names(fset *token.FileSet, f *ast.File, line int, analyzer string) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			n := fset.Position(c.Slash).Line
			m := nolint.FindStringSubmatch(c.Text)
			if m != nil && (n == line || n == line-1) && strings.Contains(","+m[1]+",", ","+analyzer+",") {
				return true
			}
		}
	}
	return false
}
