//go:build search

package replay

import "testing"

// TestService replays the tests of their service against the composition of answers in package rls.
func TestService(t *testing.T) {
	dir := duplicate(t)
	compare(t, serviceRows, test(t, dir, serviceRows, "./test/service", "./src/service"))
}

// quotas is a change of theirs since the replayed version, which package parity compares.
const quotas = "a quota that is used up is over, and so is a request whose quotas are all used up"

// serviceRows are their tests.
var serviceRows = rowsOf(
	map[string]row{
		"test/service.TestInitialLoadError":                          {differs: "without rules, every request is answered with OK; theirs is an error"},
		"test/service.TestServiceGlobalQuotaMode":                    {differs: quotas},
		"test/service.TestServicePerDescriptorQuotaMode":             {differs: quotas},
		"test/service.TestServiceQuotaModeOnly":                      {differs: quotas},
		"test/service.TestServiceQuotaModeWithMetadata":              {differs: quotas},
		"test/service.TestServiceQuotaModeWithShadowMode":            {differs: quotas},
		"src/service.TestRatelimitToMetadata":                        {elsewhere: "the fields of quotas are gone, there too; package parity compares the others"},
		"test/service.TestServiceTracer":                             {elsewhere: "a span of OpenTelemetry: an interceptor of gRPC makes it, and not the service"},
		"test/service.TestServiceHealthStatus":                       {elsewhere: "the health of a process is that of its command, and no composition of answers"},
		"test/service.TestServiceHealthStatusAtLeastOneConfigLoaded": {elsewhere: "the health of a process is that of its command, and no composition of answers"},
	},
	"test/service.TestCacheError",
	"test/service.TestEmptyDescriptors",
	"test/service.TestEmptyDomain",
	"test/service.TestMixedRuleShadowMode",
	"test/service.TestRuleShadowMode",
	"test/service.TestService",
	"test/service.TestServiceGlobalShadowMode",
	"test/service.TestServiceWithCustomRatelimitHeaders",
	"test/service.TestServiceWithDefaultRatelimitHeaders",
	"test/service.TestUnlimited",
)
