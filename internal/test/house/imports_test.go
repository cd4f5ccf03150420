package house

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestImportsPointOneWay(t *testing.T) {
	sources := loadModule(t)
	report(t, checkImports(packages(sources), edges(sources)))
}

// TestPinnedPackagesAreInTheProduct checks that the product, and not only its tests, stands on the packages that its users pinned.
func TestPinnedPackagesAreInTheProduct(t *testing.T) {
	sources := loadModule(t)
	for to, from := range map[string]string{
		redisClient: "internal/runner", gobreaker: "internal/circuit", otel + "/metric": "hybrid", xtime + "/rate": "hybrid",
		lru + "/simplelru": "hybrid",
	} {
		if !slices.ContainsFunc(edges(sources), func(e edge) bool {
			return !e.test && (e.from == from || strings.HasPrefix(e.from, from+"/internal/")) && e.to == to
		}) {
			t.Errorf("%s does not import %s", from, to)
		}
	}
	if !slices.ContainsFunc(edges(sources), func(e edge) bool { return !e.test && e.from == "local" && e.to == lru+"/simplelru" }) {
		t.Error("local does not import golang-lru")
	}
}

// in is an import of a package of this module by a non-test file. out is an import of a third-party or standard package.
func in(from, to string) edge  { return edge{from: from, to: to, inside: true, at: from + "/x.go:1"} }
func out(from, to string) edge { return edge{from: from, to: to, at: from + "/x.go:1"} }

// inTest is the same import as in, made by a _test.go file.
func inTest(from, to string) edge {
	e := in(from, to)
	e.test = true
	return e
}

func TestForbiddenImportsAreReported(t *testing.T) {
	bad := []edge{
		// The root is vocabulary: standard library only.
		in(".", "internal/algo"),
		in(".", "hybrid"),
		out(".", redisClient),
		out(".", xtime+"/rate"),
		// Leaves import only the root.
		in("internal/algo", "lua"),
		in("internal/algo", "local"),
		in("internal/wire", "lua"),
		out("internal/wire", redisClient),
		in("lua", "internal/algo"),
		in("lua", "internal/wire"),
		out("internal/algo", xtime+"/rate"),
		in("lua", "global"),
		out("lua", redisClient),
		out("lua", redisClient+"/internal/proto"),
		in("local", "global"),
		in("local", "lua"),
		out("local", redisClient),
		in("breaker", "global"),
		in("breaker", "internal/algo"),
		in("breaker", "internal/circuit"),
		in("breaker", "."),
		out("breaker", gobreaker),
		out("breaker", redisClient),
		in("internal/circuit", "global"),
		in("internal/circuit", "internal/algo"),
		// The middle does not import packages above it or beside it.
		in("global", "sync"),
		in("global", "local"),
		in("global", "internal/account"),
		in("global", "hybrid"),
		in("sync", "hybrid"),
		in("sync", "global"),
		in("sync", "internal/runner"),
		in("hybrid", "global"),
		in("internal/runner", "global"),
		in("global", "internal/respguard"),
		in("sync", "local"),
		out("sync", gobreaker),
		// Only examples import hybrid. An adapter takes any Limiter.
		in("httplimit", "hybrid"),
		in("httplimit", "local"),
		out("httplimit", "google.golang.org/grpc"),
		in("internal/ratelimitheader", "internal/algo"),
		in("hybrid", "internal/ratelimitheader"),
		// Packages made for tests stay in tests, under any name.
		in("hybrid", "internal/test/redistest"),
		in("hybrid", "internal/test/fleet"),
		in("global", "internal/whatever"),
		in("hybrid", "examples/quickstart"),
		out("hybrid", "testing"),
		out("hybrid", "testing/synctest"),
		out("httplimit", "net/http/httptest"),
		out("hybrid", miniredis),
		out("local", rapid),
		out("local", xtime+"/rate"), // only tests compare with it
		out("global", lru+"/simplelru"),
		// A module whose name starts like an allowed one is another module.
		out("hybrid", redisClient+"x"),
		// Examples are code that a user could write.
		in("examples/quickstart", "internal/test/redistest"),
		in("examples/quickstart", "lua"),
		out("examples/quickstart", rapid),
		// Tools are also users of the library.
		in("cmd/hybridlimit", "internal/algo"),
		in("cmd/hybridlimit", "internal/test/redistest"),
		in("cmd/hybridlimit", "sync"),
		in("hybrid", "cmd/hybridlimit"),
		out("cmd/hybridlimit", otel),
		in("hybrid", "hybrid/debug"),
		in("hybrid/debug", "lua"),
		in("otellimit", "local"),
		in("hybrid", "limitfile"),
		in("limitfile", "local"),
		out("limitfile", "go.yaml.in/yaml/v3"),
	}
	for _, e := range bad {
		found := checkImports(nil, []edge{e})
		if len(found) != 1 || !strings.Contains(found[0], e.from+" must not import "+e.to) {
			t.Errorf("%s importing %s must be reported once, got %q", e.from, e.to, found)
		}
	}
}

func TestAllowedImportsAreNotReported(t *testing.T) {
	good := []edge{
		out(".", "context"),
		out("lua", "embed"),
		in("internal/wire", "internal/algo"),
		in("local", "."),
		out("internal/circuit", gobreaker),
		in("internal/circuit", "breaker"),
		in("global", "breaker"),
		in("internal/runner", "internal/circuit"),
		in("global", "lua"),
		out("global", redisClient),
		in("sync", "internal/wire"),
		in("hybrid", "internal/runner"),
		in("global", "internal/runner"),
		in("cmd/hybridlimit", "internal/runner"),
		in("sync", "lua"),
		in("sync", "breaker"),
		in("sync", "internal/circuit"),
		in("hybrid", "internal/circuit"),
		in("hybrid", "sync"),
		in("hybrid", "local"),
		in("hybrid/debug", "hybrid"),
		in("cmd/hybridlimit", "lua"),
		in("cmd/hybridlimit", "httplimit"),
		out("cmd/hybridlimit", redisClient),
		out("otellimit", otel+"/metric"),
		out("limitfile", otel+"/metric"),
		in("limitfile", "hybrid"),
		in("cmd/hybridlimit", "limitfile"),
		out("hybrid", otel+"/metric"),
		out("httplimit", "net/http"),
		in("httplimit", "internal/ratelimitheader"),
		in("examples/quickstart", "hybrid"),
		out("examples/quickstart", miniredis),
		in("internal/test/fleet", "hybrid"),
		out("internal/test/redistest", "testing"),
		inTest("local", "hybrid"),
		inTest("hybrid", "internal/test/redistest"),
		inTest(".", "local"),
	}
	report(t, checkImports(nil, good))
}

func TestUnknownPackagesAreReported(t *testing.T) {
	found := checkImports([]string{".", "cmd/any", "tools/hl", "examples/quickstart", "hybrid", "hybrid/internal/x", "internal/any", "internal/test/any", "sync2"}, nil)
	expect(t, found, "package tools/hl", "package hybrid/internal/x", "package internal/any", "package sync2")
}

// TestGraphIsReadFromFiles covers the whole way from source text to finding, with all files that load must read or skip.
func TestGraphIsReadFromFiles(t *testing.T) {
	const upward = "import _ \"" + modulePath + "/hybrid\"\n"
	tree := fstest.MapFS{
		"go.mod":                       {Data: []byte("module " + modulePath + "\n")},
		"limit.go":                     {Data: []byte("package hybridlimit\n" + upward)},
		"local/tagged.go":              {Data: []byte("//go:build plan9\n\npackage local\n" + upward)},
		"local/local_test.go":          {Data: []byte("package local\n" + upward)},
		"local/gen.go":                 {Data: []byte("//go:build ignore\n\npackage main\n" + upward)},
		"local/testdata/x.go":          {Data: []byte("package x\n" + upward)},
		"local/_old/x.go":              {Data: []byte("package x\n" + upward)},
		".cache/x.go":                  {Data: []byte("package x\n" + upward)},
		"bench/go.mod":                 {Data: []byte("module " + modulePath + "/bench\n")},
		"bench/bench.go":               {Data: []byte("package bench\n" + upward)},
		"global/global.go":             {Data: []byte("package global\nimport r \"" + modulePath + "\"\nvar _ r.Limit\n")},
		"examples/quick/main.go":       {Data: []byte("package main\n" + upward)},
		"internal/test/fleet/fleet.go": {Data: []byte("package fleet\n" + upward)},
	}
	sources, err := load(tree)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, checkImports(packages(sources), edges(sources)),
		"limit.go:2: . must not import hybrid",
		"local/tagged.go:4: local must not import hybrid",
	)
}

// TestRapidIsSeeded: a package whose tests use rapid draws the same values in each run.
func TestRapidIsSeeded(t *testing.T) { report(t, checkSeeded(edges(loadModule(t)))) }

// rapidSeed is imported for its side effect. redistest uses only a type of rapid.
const rapidSeed = "internal/test/rapidseed"

// checkSeeded returns one line for each package whose tests import rapid without the package that seeds it.
func checkSeeded(imports []edge) (bad []string) {
	seeded := map[string]bool{rapidSeed: true, "internal/test/redistest": true}
	for _, e := range imports {
		if e.inside && e.to == rapidSeed {
			seeded[e.from] = true
		}
	}
	for _, e := range imports {
		if e.test && e.to == rapid && !seeded[e.from] {
			bad = append(bad, e.at+": rapid draws a seed of its own in "+e.from+": import "+rapidSeed+" for its effect")
			seeded[e.from] = true
		}
	}
	return bad
}

func TestUnseededChecksAreReported(t *testing.T) {
	unseeded := edge{from: "local", to: rapid, test: true, at: "local/x_test.go:1"}
	expect(t, checkSeeded([]edge{unseeded, unseeded}), "in local")
	expect(t, checkSeeded([]edge{unseeded, inTest("local", rapidSeed)}))
}
