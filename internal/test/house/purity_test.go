package house

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
	"testing/fstest"
)

// pure lists the packages that are functions of their arguments, and the packages of the standard library that each may import.
// None of these is a lock, an atomic operation, a log, randomness or the network. checkClock finds the clocks of package time.
// Goroutines are also not permitted in a pure package.
var pure = map[string][]string{
	"internal/account":   {"math", "slices", "strconv", "time"},
	"internal/algo":      {"cmp", "errors", "fmt", "math", "math/bits", "slices", "sort", "strconv", "strings", "time"},
	"internal/parts":     {"fmt", "hash/fnv", "time"},
	"internal/permits":   {"cmp", "errors", "maps", "math", "slices", "time"},
	"internal/ratelease": {"math", "time"},
}

func TestPurePackagesArePure(t *testing.T) { report(t, checkPure(loadModule(t))) }

// checkPure returns the imports that a pure package may not have, go statements, and channel operations.
func checkPure(sources []source) []string {
	var bad []string
	for _, s := range sources {
		allowed, ok := pure[s.dir]
		if s.test || !ok {
			continue
		}
		for _, imp := range s.tree.Imports {
			if path := importPath(imp); standard(path) && !slices.Contains(allowed, path) {
				bad = append(bad, fmt.Sprintf("%s: %s is pure and must not import %s", s.at(imp.Pos()), s.dir, path))
			}
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt:
				bad = append(bad, fmt.Sprintf("%s: %s is pure and must not start or wait for anything", s.at(n.Pos()), s.dir))
			case *ast.UnaryExpr:
				if n.Op.String() == "<-" {
					bad = append(bad, fmt.Sprintf("%s: %s is pure and must not wait for anything", s.at(n.Pos()), s.dir))
				}
			}
			return true
		})
	}
	return bad
}

func TestImpurityIsReported(t *testing.T) {
	const text = `// Package account is impure.
package account

import (
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

func f(c chan int) {
	go f(c)
	<-c
	c <- 1
	select {}
}
`
	expect(t, checkPure(parse(t, fstest.MapFS{
		"internal/account/x.go":      {Data: []byte(text)},
		"internal/account/x_test.go": {Data: []byte(text)},
		"hybrid/x.go":                {Data: []byte(text)},
	})), "must not import log/slog", "must not import net", "must not import sync", "must not import sync/atomic",
		"x.go:13: internal/account is pure and must not start", "x.go:14: internal/account is pure and must not wait",
		"x.go:15: internal/account is pure and must not start", "x.go:16: internal/account is pure and must not start")
}
