package house

import (
	"fmt"
	"slices"
	"strings"
)

// rule lists the packages that the non-test files of a package may import besides the standard library. Tests may import all
// packages.
type rule struct {
	inside  []string // packages of this module
	outside []string // third-party packages, with all packages below them
}

// Third-party packages by their role. The OTel SDK is not among them: go.mod may not require it (gomod_test.go).
const (
	redisClient = "github.com/redis/go-redis/v9"
	gobreaker   = "github.com/sony/gobreaker/v2"
	lru         = "github.com/hashicorp/golang-lru/v2"
	xtime       = "golang.org/x/time"
	otel        = "go.opentelemetry.io/otel"
	xxhash      = "github.com/cespare/xxhash/v2"
	miniredis   = "github.com/alicebob/miniredis/v2"
	gopherLua   = "github.com/yuin/gopher-lua"
	rapid       = "pgregory.net/rapid"
)

// product has a rule for each package that users import, and for each package that is part of one. A new line here, or a longer
// one, is a decision about the dependencies of the library and of its users.
var product = map[string]rule{
	".":                  {},
	"adapter":            {inside: []string{"."}}, // for authors of limiters and adapters
	"internal/periods":   {inside: []string{"."}},
	"internal/algo":      {inside: []string{".", "internal/periods"}},
	"internal/parts":     {inside: []string{"."}},                                                         // pure: purity_test.go
	"internal/account":   {inside: []string{".", "internal/algo", "internal/fallback", "internal/parts"}}, // pure: purity_test.go
	"internal/fallback":  {outside: []string{lru, xtime}},
	"internal/sometimes": {outside: []string{xtime}},
	"internal/permits":   {}, // pure: purity_test.go
	"internal/ratelease": {}, // pure: purity_test.go
	"internal/census":    {},
	"internal/groups":    {},
	"internal/waiting":   {inside: []string{"."}},
	"internal/news":      {inside: []string{"."}},
	"internal/moves":     {inside: []string{"."}, outside: []string{redisClient, otel, xxhash}},
	"internal/classes":   {inside: []string{".", "adapter"}},
	"internal/shards":    {},
	"internal/refresh":   {inside: []string{".", "adapter"}},
	"internal/respguard": {},
	"internal/clock":     {},
	"internal/wire":      {inside: []string{".", "internal/algo", "internal/news", "internal/permits", "internal/ratelease"}},
	"lua":                {inside: []string{"."}}, // for programs without the Redis client of this module
	"local":              {inside: []string{".", "adapter", "internal/algo", "internal/classes", "internal/news", "internal/refresh", "internal/shards", "internal/waiting"}, outside: []string{lru, xxhash}},
	"breaker":            {},
	"internal/circuit":   {inside: []string{".", "adapter", "breaker"}, outside: []string{gobreaker, redisClient}},
	"internal/runner": {
		inside:  []string{".", "internal/algo", "internal/circuit", "internal/permits", "internal/ratelease", "internal/respguard", "internal/sometimes", "internal/wire", "lua"},
		outside: []string{redisClient, otel, xxhash},
	},
	"global": {
		inside:  []string{".", "adapter", "breaker", "internal/algo", "internal/circuit", "internal/moves", "internal/news", "internal/runner", "internal/waiting", "internal/wire", "lua"},
		outside: []string{redisClient, otel, xxhash},
	},
	"sync": { // no limiter
		inside:  []string{".", "internal/algo", "internal/circuit", "internal/wire", "lua", "breaker"},
		outside: []string{redisClient, otel, xxhash},
	},
	"hybrid/internal/tell": {
		inside:  []string{".", "adapter", "breaker", "internal/account", "internal/sometimes", "internal/wire", "lua", "sync"},
		outside: []string{redisClient, xtime, otel, xxhash},
	},
	"hybrid/internal/control": {
		inside: []string{
			".", "adapter", "internal/account", "internal/algo", "internal/census", "internal/classes", "internal/clock", "internal/fallback", "internal/ratelease", "internal/refresh",
			"internal/sometimes", "internal/wire", "lua", "hybrid/internal/tell",
		},
		outside: []string{redisClient, xtime, otel, xxhash},
	},
	"hybrid/internal/member": {
		inside: []string{
			".", "internal/account", "internal/algo", "internal/census", "internal/circuit", "internal/clock", "internal/groups", "internal/permits",
			"internal/runner", "internal/sometimes", "internal/wire", "lua", "breaker", "sync", "hybrid/internal/control", "hybrid/internal/tell",
		},
		outside: []string{redisClient, xtime, otel, xxhash},
	},
	"hybrid/internal/inflight": {
		inside: []string{
			".", "adapter", "internal/account", "internal/algo", "internal/circuit", "internal/clock", "internal/fallback", "internal/permits", "internal/runner", "internal/wire", "lua",
			"sync", "hybrid/internal/control", "hybrid/internal/member", "hybrid/internal/tell",
		},
		outside: []string{redisClient, xtime, otel, xxhash},
	},
	"hybrid/internal/leased": {
		inside: []string{
			".", "internal/account", "internal/circuit", "internal/clock", "internal/fallback", "internal/ratelease", "internal/runner", "internal/shards", "internal/wire", "lua",
			"sync", "hybrid/internal/control", "hybrid/internal/member", "hybrid/internal/tell",
		},
		outside: []string{redisClient, lru, xtime, otel, xxhash},
	},
	"hybrid/internal/keys": {
		inside: []string{
			".", "internal/account", "internal/algo", "internal/census", "internal/clock", "internal/fallback", "internal/refresh",
			"internal/runner", "internal/shards", "internal/sometimes", "internal/wire", "lua", "sync",
			"internal/parts", "hybrid/internal/control", "hybrid/internal/member", "hybrid/internal/restore", "hybrid/internal/split", "hybrid/internal/tell",
		},
		outside: []string{redisClient, lru, xtime, otel, xxhash},
	},
	"hybrid/internal/split": {
		inside:  []string{".", "internal/parts"},
		outside: []string{lru},
	},
	"hybrid/internal/restore": {
		inside:  []string{"internal/account", "internal/algo"},
		outside: []string{lru},
	},
	"hybrid/internal/direct": {
		inside: []string{
			".", "internal/account", "internal/algo", "internal/circuit", "internal/clock", "internal/news", "internal/parts", "internal/runner", "internal/wire", "sync",
			"hybrid/internal/control", "hybrid/internal/keys", "hybrid/internal/split",
		},
		outside: []string{redisClient, lru, xtime, otel, xxhash},
	},
	"hybrid/internal/explain": {
		inside: []string{
			".", "internal/account", "internal/fallback", "hybrid/internal/control", "hybrid/internal/keys",
		},
		outside: []string{redisClient, lru, xtime, otel, xxhash},
	},
	"hybrid": {
		inside: []string{
			".", "adapter", "internal/account", "internal/algo", "internal/census", "internal/circuit", "internal/clock", "internal/fallback", "internal/permits",
			"internal/groups", "internal/classes", "internal/moves", "internal/news", "internal/parts", "internal/refresh", "internal/runner", "internal/shards", "internal/sometimes", "internal/waiting", "internal/wire", "lua",
			"breaker", "local", "sync", "hybrid/internal/control", "hybrid/internal/direct", "hybrid/internal/explain",
			"hybrid/internal/inflight", "hybrid/internal/keys", "hybrid/internal/leased", "hybrid/internal/member", "hybrid/internal/restore", "hybrid/internal/split", "hybrid/internal/tell",
		},
		outside: []string{redisClient, lru, xtime, otel, xxhash},
	},
	"hybrid/debug":             {inside: []string{".", "clientkey", "hybrid"}}, // an adapter, so that hybrid does not import net/http
	"internal/ratelimitheader": {inside: []string{"."}},
	"clientkey":                {inside: []string{"."}},
	"internal/clientaddr":      {inside: []string{".", "adapter", "clientkey"}},                                                              // shared with the module grpclimit
	"internal/gate":            {inside: []string{".", "adapter", "internal/ratelimitheader", "internal/sometimes"}, outside: []string{lru}}, // shared with the module grpclimit
	"httplimit":                {inside: []string{".", "adapter", "clientkey", "internal/clientaddr", "internal/gate", "internal/news", "internal/ratelimitheader", "internal/sometimes", "spend"}},
	"otellimit":                {inside: []string{".", "adapter", "internal/news"}, outside: []string{otel}},
	"notice":                   {inside: []string{".", "adapter", "internal/news", "internal/periods", "internal/shards", "internal/sometimes"}, outside: []string{lru}},
	"spend":                    {inside: []string{".", "adapter", "internal/news"}, outside: []string{lru}},
	"region": { // above hybrid and global, which do not know it
		inside:  []string{".", "adapter", "global", "hybrid", "internal/moves", "internal/sometimes"},
		outside: []string{redisClient, otel, xxhash},
	},
	"internal/filepoll":  {},
	"internal/yamlbound": {}, // shared by the modules limitfile/yamllimit and rls
	"limitfile":          {inside: []string{".", "adapter", "hybrid", "internal/fallback", "internal/filepoll"}, outside: []string{otel}},
	"limittest":          {inside: []string{".", "adapter"}}, // made for tests, but imports no test package
}

// example is the rule of all packages below examples/: programs that a user could copy, so only public packages.
var example = rule{
	inside:  []string{".", "breaker", "clientkey", "local", "global", "hybrid", "httplimit", "limitfile", "limittest", "spend"},
	outside: []string{redisClient, miniredis, otel},
}

// tool is the rule of all packages below cmd/: programs for operators, which read the data in Redis. They need lua, also for
// the keys that httplimit makes. They may not import test support, or a module that the library does not depend on anyway.
var tool = rule{
	inside:  []string{".", "adapter", "clientkey", "internal/fallback", "internal/groups", "internal/parts", "internal/ratelease", "internal/runner", "internal/wire", "lua", "global", "hybrid", "httplimit", "limitfile"},
	outside: []string{redisClient},
}

// ruleOf returns the rule of a package. ok is false for a package without a rule. free is true for test support: any package below
// internal/test/. It may import all packages, and product may not import it.
func ruleOf(pkg string) (r rule, free, ok bool) {
	if r, ok := product[pkg]; ok {
		return r, false, true
	}
	if strings.HasPrefix(pkg, "examples/") {
		return example, false, true
	}
	if strings.HasPrefix(pkg, "cmd/") {
		return tool, false, true
	}
	if strings.HasPrefix(pkg, "internal/test/") {
		return rule{}, true, true
	}
	return rule{}, false, false
}

// isProduct reports whether users depend on a package, directly or not.
func isProduct(pkg string) bool {
	_, ok := product[pkg]
	return ok
}

// checkImports returns one line for each package without a rule and for each import that no rule allows.
func checkImports(pkgs []string, imports []edge) []string {
	var bad []string
	for _, p := range pkgs {
		if _, _, ok := ruleOf(p); !ok {
			bad = append(bad, fmt.Sprintf("package %s has no rule: say in internal/test/house/rules_test.go what it may import", p))
		}
	}
	for _, e := range imports {
		r, free, ok := ruleOf(e.from)
		if e.test || free || !ok || r.allows(e) {
			continue
		}
		bad = append(bad, fmt.Sprintf("%s: %s must not import %s (besides the standard library it may import: %s)",
			e.at, e.from, e.to, r))
	}
	return bad
}

// allows reports whether the rule permits an import. Only tests may import packages made for tests.
func (r rule) allows(e edge) bool {
	switch {
	case e.inside:
		return slices.Contains(r.inside, e.to)
	case below(e.to, "testing") || e.to == "net/http/httptest":
		return false
	case standard(e.to):
		return true
	default:
		return slices.ContainsFunc(r.outside, func(p string) bool { return below(e.to, p) })
	}
}

// String lists the packages that the rule allows.
func (r rule) String() string {
	all := slices.Concat(r.inside, r.outside)
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ") // "." is the root package
}

// below reports whether pkg is parent or a package below it.
func below(pkg, parent string) bool {
	return pkg == parent || strings.HasPrefix(pkg, parent+"/")
}

// standard reports whether an import path belongs to the standard library: its first element has no dot.
func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".")
}
