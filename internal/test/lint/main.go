// Command lint is the tool behind make lint: go vet -vettool=lint ./... runs it on each package.
//
// It has the analyzers of go vet, those of staticcheck (with U1000, unused code), errorlint and nilerr. They find
// defects. Style is for make style, which needs golangci-lint: to compile that takes longer than all of make test.
//
// The go command keeps its results in the build cache, so a package that did not change is not analyzed again. Only the
// packages of this project are analyzed. What a dependency declares as deprecated is therefore not known here; make
// style knows it.
//
// A line with, or below, a comment "//nolint:NAME // REASON" has no finding of the analyzer NAME. The reason must stand
// there.
package main

import (
	"encoding/json"
	"os"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/gostaticanalysis/nilerr"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
)

// project is the path of the root module. The path of each nested module begins with it.
const project = "github.com/hybridlimit/hybridlimit"

func main() {
	if foreign(os.Args[len(os.Args)-1]) {
		unitchecker.Main() // its types are needed; all facts are left out
	}
	unitchecker.Main(analyzers()...)
}

// foreign reports whether the go command asks only for the facts of a package of another project, by the file of a
// unit. The analyzers know the functions of the standard library that matter, like fmt.Printf and os.Exit. To analyze
// all dependencies takes longer than to analyze the project.
func foreign(file string) bool {
	if !strings.HasSuffix(file, ".cfg") {
		return false
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false // unitchecker reports it
	}
	var unit unitchecker.Config
	return json.Unmarshal(text, &unit) == nil && unit.VetxOnly && !strings.HasPrefix(unit.ImportPath, project)
}

// analyzers returns all analyzers.
func analyzers() []*analysis.Analyzer {
	all := append([]*analysis.Analyzer{}, vet.Suite...)
	for _, set := range [][]*lint.Analyzer{staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers} {
		for _, a := range set {
			if !left[a.Analyzer.Name] {
				all = append(all, a.Analyzer)
			}
		}
	}
	all = append(all, unused, errorlint.NewAnalyzer(), nilerr.Analyzer)
	for _, a := range all {
		heed(a)
	}
	return all
}

// left has the checks of staticcheck that are left to make style, which knows of exceptions: names, and the form of
// comments.
var left = map[string]bool{"ST1000": true, "ST1003": true, "ST1016": true, "ST1020": true, "ST1021": true, "ST1022": true}
