package main

import (
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
			d := analysis.Diagnostic{Message: o.Kind + " " + o.Name + " is unused (U1000)"}
			for _, f := range pass.Files {
				if file := pass.Fset.File(f.FileStart); file.Name() == o.Position.Filename {
					d.Pos = file.Pos(o.Position.Offset)
				}
			}
			pass.Report(d)
		}
		return nil, nil
	},
}

// heed lets an analyzer heed comments with nolint. errorlint leaves tests out: a test may insist on the very error that
// was promised.
func heed(a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		narrow := *pass
		narrow.Report = func(d analysis.Diagnostic) {
			at := pass.Fset.Position(d.Pos)
			if !excepted(pass, a.Name, at) && (a.Name != "errorlint" || !strings.HasSuffix(at.Filename, "_test.go")) {
				pass.Report(d)
			}
		}
		return run(&narrow)
	}
}

var nolint = regexp.MustCompile(`^//nolint:([a-zA-Z0-9,]+) // \S`)

// excepted reports whether a nolint comment with a reason names the analyzer, on the line of a place or on the line
// above.
func excepted(pass *analysis.Pass, analyzer string, at token.Position) bool {
	for _, f := range pass.Files {
		for _, group := range f.Comments {
			for _, c := range group.List {
				is, m := pass.Fset.Position(c.Slash), nolint.FindStringSubmatch(c.Text)
				if m != nil && is.Filename == at.Filename && (is.Line == at.Line || is.Line == at.Line-1) &&
					strings.Contains(","+m[1]+",", ","+analyzer+",") {
					return true
				}
			}
		}
	}
	return false
}
