//go:build search

package replay

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scenarioRows are the tests of test/integration. They start servers on fixed ports and read the counters of their
// own process, so that they cannot run here. The value is the test of this package that has the same requests and
// answers, with a running hybridlimit-rls and their configuration; or it is the reason why there is none.
var scenarioRows = map[string]scenario{
	"TestBasicConfig":                                                                                {by: "TestScenarioBasic"},
	"TestBasicConfig/WithoutPerSecondRedis":                                                          {by: "TestScenarioBasic"},
	"TestBasicConfig/WithPerSecondRedis":                                                             {none: oneRedis},
	"TestBasicConfig/WithoutPerSecondRedisWithLocalCache":                                            {by: "TestScenarioBasic"},
	"TestBasicConfig/WithPerSecondRedisWithLocalCache":                                               {none: oneRedis},
	"TestBasicConfig/WithoutPerSecondRedisWithCachePrefix":                                           {by: "TestScenarioBasic"},
	"TestBasicConfig/WithoutPerSecondRedisWithstopCacheKeyIncrementWhenOverlimitConfig":              {by: "TestScenarioBasic"},
	"TestBasicConfig/WithPerSecondRedisWithstopCacheKeyIncrementWhenOverlimitConfig":                 {none: oneRedis},
	"TestBasicConfig/WithoutPerSecondRedisWithLocalCacheAndstopCacheKeyIncrementWhenOverlimitConfig": {by: "TestScenarioBasic"},
	"TestBasicConfig/WithPerSecondRedisWithLocalCacheAndstopCacheKeyIncrementWhenOverlimitConfig":    {none: oneRedis},

	"TestXdsProviderBasicConfig":                                     {none: xds},
	"TestXdsProviderBasicConfig/WithoutPerSecondRedis":               {none: xds},
	"TestXdsProviderBasicConfig/WithPerSecondRedis":                  {none: xds},
	"TestXdsProviderBasicConfig/WithoutPerSecondRedisWithLocalCache": {none: xds},
	"TestXdsProviderBasicConfig/WithPerSecondRedisWithLocalCache":    {none: xds},
	"TestXdsProviderBasicConfigReload":                               {none: xds},
	"TestXdsProviderBasicConfigReload/ReloadConfigWithXdsServer":     {none: xds},

	"TestBasicConfig_ExtraTags": {none: "not applicable: tags for statsd: Prometheus adds labels to all series of a target by itself"},

	"TestBasicTLSConfig":                                        {by: "TestScenarioRedisTLS"},
	"TestBasicTLSConfig/WithoutPerSecondRedisTLS":               {by: "TestScenarioRedisTLS"},
	"TestBasicTLSConfig/WithPerSecondRedisTLS":                  {none: oneRedis},
	"TestBasicTLSConfig/WithoutPerSecondRedisTLSWithLocalCache": {by: "TestScenarioRedisTLS"},
	"TestBasicTLSConfig/WithPerSecondRedisTLSWithLocalCache":    {none: oneRedis},
	"TestBasicTLSConfig/WithoutPerSecondRedisTLSWithClientCert": {by: "TestScenarioRedisTLS"},

	"TestBasicAuthConfig":                                         {by: "TestScenarioAuth"},
	"TestBasicAuthConfig/WithoutPerSecondRedisAuth":               {by: "TestScenarioAuth"},
	"TestBasicAuthConfig/WithPerSecondRedisAuth":                  {none: oneRedis},
	"TestBasicAuthConfig/WithoutPerSecondRedisAuthWithLocalCache": {by: "TestScenarioAuth"},
	"TestBasicAuthConfig/WithPerSecondRedisAuthWithLocalCache":    {none: oneRedis},

	"TestBasicAuthConfigWithRedisCluster":                                         {by: "TestScenarioCluster"},
	"TestBasicAuthConfigWithRedisCluster/WithoutPerSecondRedisAuth":               {by: "TestScenarioCluster"},
	"TestBasicAuthConfigWithRedisCluster/WithPerSecondRedisAuth":                  {none: oneRedis},
	"TestBasicAuthConfigWithRedisCluster/WithoutPerSecondRedisAuthWithLocalCache": {by: "TestScenarioCluster"},
	"TestBasicAuthConfigWithRedisCluster/WithPerSecondRedisAuthWithLocalCache":    {none: oneRedis},

	"TestBasicAuthConfigWithRedisSentinel":                                         {by: "TestScenarioSentinel"},
	"TestBasicAuthConfigWithRedisSentinel/WithoutPerSecondRedisAuth":               {by: "TestScenarioSentinel"},
	"TestBasicAuthConfigWithRedisSentinel/WithPerSecondRedisAuth":                  {none: oneRedis},
	"TestBasicAuthConfigWithRedisSentinel/WithoutPerSecondRedisAuthWithLocalCache": {by: "TestScenarioSentinel"},
	"TestBasicAuthConfigWithRedisSentinel/WithPerSecondRedisAuthWithLocalCache":    {none: oneRedis},

	"TestBasicReloadConfig":                        {by: "TestScenarioReload"},
	"TestBasicReloadConfig/BasicWithoutWatchRoot":  {by: "TestScenarioBasic"},
	"TestBasicReloadConfig/ReloadWithoutWatchRoot": {by: "TestScenarioReload"},

	"TestBasicConfigMemcache":                                              {none: memcached},
	"TestBasicConfigMemcache/Memcache":                                     {none: memcached},
	"TestBasicConfigMemcache/MemcacheWithLocalCache":                       {none: memcached},
	"TestBasicConfigMemcache/MemcacheWithPrefix":                           {none: memcached},
	"TestConfigMemcacheWithMaxIdleConns":                                   {none: memcached},
	"TestConfigMemcacheWithMaxIdleConns/MemcacheWithDefaultMaxIdleConns":   {none: memcached},
	"TestConfigMemcacheWithMaxIdleConns/MemcacheWithSpecifiedMaxIdleConns": {none: memcached},
	"TestMultiNodeMemcache":                                                {none: memcached},
	"TestMultiNodeMemcache/MemcacheMultipleNodes":                          {none: memcached},

	"Test_mTLS":                 {by: "TestScenarioCertificates"},
	"Test_mTLSSetup":            {none: "not applicable: a test of their helpers"},
	"TestReloadGRPCServerCerts": {by: "TestScenarioCertificates"},
	"TestReloadGRPCServerCerts/WithInitialCert":     {by: "TestScenarioCertificates"},
	"TestReloadGRPCServerCerts/WithNewCertFail":     {by: "TestScenarioCertificates"},
	"TestReloadGRPCServerCerts/WithNewCertOK":       {by: "TestScenarioCertificates"},
	"TestReloadGRPCServerCerts/WithInitialCertFail": {by: "TestScenarioCertificates"},

	"TestShareThreshold":                       {by: "TestScenarioShareThreshold"},
	"TestShareThreshold/WithoutPerSecondRedis": {by: "TestScenarioShareThreshold"},
}

// scenario is the row of a test: one of both is empty. A reason begins with "differs on purpose: " or
// "not applicable: ".
type scenario struct{ by, none string }

// The reasons for which a scenario is not replayed.
const (
	oneRedis  = "differs on purpose: one Redis has all counts; there is none for limits by the second"
	xds       = "not applicable: their stream is that of package xds, whose tests have a control plane"
	memcached = "not applicable: the counts are in Redis, and not in memcached"
)

// Each of their scenarios has a row, and each row a scenario. The tests that rows name exist.
func TestScenariosHaveRows(t *testing.T) {
	theirs := testsOf(t, filepath.Join(source(t), "test", "integration"))
	ours := testsOf(t, ".")
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if _, ok := scenarioRows[name]; !ok {
			t.Errorf("%s has no row", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(scenarioRows)) {
		row := scenarioRows[name]
		if !theirs[name] {
			t.Errorf("%s has a row, and is no scenario", name)
		}
		if (row.by == "") == (row.none == "") || row.by != "" && !ours[row.by] {
			t.Errorf("%s: there is no test %q, or the row has a reason %q too", name, row.by, row.none)
		}
		if row.none != "" && !strings.HasPrefix(row.none, "differs on purpose: ") && !strings.HasPrefix(row.none, "not applicable: ") {
			t.Errorf("%s: the reason %q", name, row.none)
		}
	}
}

// testsOf returns the tests in a directory, and their subtests with constant names.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
				continue
			}
			names[fn.Name.Name] = true
			ast.Inspect(fn, func(n ast.Node) bool {
				if sub, ok := subtest(n); ok {
					names[fn.Name.Name+"/"+sub] = true
				}
				return true
			})
		}
	}
	if len(names) == 0 {
		t.Fatalf("%s has no tests", dir)
	}
	return names
}

// subtest returns the name in a call of t.Run with a constant.
func subtest(n ast.Node) (name string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return "", false
	}
	run, ok := call.Fun.(*ast.SelectorExpr)
	text, isText := call.Args[0].(*ast.BasicLit)
	if !ok || !isText || run.Sel.Name != "Run" || text.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(text.Value)
	return strings.ReplaceAll(name, " ", "_"), err == nil
}
