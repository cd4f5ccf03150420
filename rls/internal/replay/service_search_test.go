//go:build search

package replay

import "testing"

// TestService replays the tests of their service against the composition of answers in package rls.
func TestService(t *testing.T) {
	dir := duplicate(t)
	compare(t, serviceRows, test(t, dir, serviceRows, "./test/service", "./src/service"))
}

// serviceRows are their tests.
var serviceRows = rowsOf(
	map[string]row{
		"test/service.TestInitialLoadError":                          {differs: "without rules, every request is answered with OK; theirs is an error"},
		"test/service.TestServiceTracer":                             {elsewhere: "a span of OpenTelemetry: an interceptor of gRPC makes it, and not the service"},
		"test/service.TestServiceHealthStatus":                       {elsewhere: "the health of a process is that of its command, and no composition of answers"},
		"test/service.TestServiceHealthStatusAtLeastOneConfigLoaded": {elsewhere: "the health of a process is that of its command, and no composition of answers"},
	},
	"src/service.TestRatelimitToMetadata",
	"src/service.TestRatelimitToMetadata/Multiple_descriptors_with_mixed_quota_violations",
	"src/service.TestRatelimitToMetadata/Request_with_hits_addend",
	"src/service.TestRatelimitToMetadata/Single_descriptor_with_quota_mode_violation",
	"src/service.TestRatelimitToMetadata/Single_descriptor_with_single_entry,_no_quota_violations",
	"test/service.TestCacheError",
	"test/service.TestEmptyDescriptors",
	"test/service.TestEmptyDomain",
	"test/service.TestMixedRuleShadowMode",
	"test/service.TestRuleShadowMode",
	"test/service.TestService",
	"test/service.TestServiceGlobalQuotaMode",
	"test/service.TestServiceGlobalShadowMode",
	"test/service.TestServicePerDescriptorQuotaMode",
	"test/service.TestServiceQuotaModeOnly",
	"test/service.TestServiceQuotaModeWithMetadata",
	"test/service.TestServiceQuotaModeWithShadowMode",
	"test/service.TestServiceWithCustomRatelimitHeaders",
	"test/service.TestServiceWithDefaultRatelimitHeaders",
	"test/service.TestUnlimited",
)
