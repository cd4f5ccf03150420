package house

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
)

// inGoSum lists the modules that the go.sum of a program may name if the program imports only local. `go mod tidy` adds each
// module behind the packages that the program imports, and behind the tests of those packages. It does not follow the tests of
// packages that only a test imports.
var inGoSum = []string{lru, xtime, xxhash, rapid}

// checkGoSum returns one line for each import that adds another module to the go.sum of a program that imports only pkg.
func checkGoSum(pkg string, imports []edge) (bad []string) {
	from := map[string][]edge{}
	for _, e := range imports {
		from[e.from] = append(from[e.from], e)
	}
	seen := map[string]bool{}
	var visit func(p, via string, tests bool)
	visit = func(p, via string, tests bool) {
		key := fmt.Sprint(p, tests)
		if seen[key] {
			return
		}
		seen[key] = true
		for _, e := range from[p] {
			switch {
			case e.test && !tests:
			case e.inside:
				visit(e.to, e.at, tests && !e.test)
			case !standard(e.to) && !slices.ContainsFunc(inGoSum, func(m string) bool { return below(e.to, m) }):
				bad = append(bad, fmt.Sprintf("%s: %s comes into the go.sum of every program that imports %s (by %s)", e.at, e.to, pkg, via))
			}
		}
	}
	visit(pkg, pkg, true)
	return bad
}

func TestGoSumOfLocalIsSmall(t *testing.T) {
	report(t, checkGoSum("local", edges(loadModule(t))))
}

func TestModulesBehindTestsAreFound(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const prefix = "import _ \"" + modulePath
	sources, err := load(fstest.MapFS{
		"local/l.go":            file("package local\n" + prefix + "\"\nimport _ \"" + lru + "\"\n"),
		"local/l_test.go":       file("package local\n" + prefix + "/internal/suite\"\nimport _ \"" + rapid + "\"\n"),
		"limit.go":              file("package hybridlimit\n"),
		"limit_test.go":         file("package hybridlimit_test\n" + prefix + "/internal/servers\"\n"),
		"internal/servers/s.go": file("package servers\nimport _ \"" + miniredis + "\"\n"),
		"internal/suite/s.go":   file("package suite\n"),
		// A test of a package that only a test imports: go mod tidy does not look there.
		"internal/suite/s_test.go": file("package suite\nimport _ \"" + miniredis + "/server\"\n"),
		"hybrid/h.go":              file("package hybrid\nimport _ \"" + redisClient + "\"\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, checkGoSum("local", edges(sources)), "internal/servers/s.go:2: "+miniredis+" comes into the go.sum of every program that imports local (by limit_test.go:2)")
}
