//go:build search

package replay

import "testing"

// TestConfig replays the tests of their configuration against package rules.
func TestConfig(t *testing.T) {
	dir := duplicate(t)
	compare(t, configRows, test(t, dir, configRows, "./test/config"))
}

// TestDifferential compares package rules with their configuration, with random files and descriptors.
func TestDifferential(t *testing.T) {
	dir := duplicate(t)
	rows := map[string]row{"test/differential.TestSameAsTheirs": {}}
	compare(t, rows, test(t, dir, rows, "./test/differential"))
}

// configRows are their tests.
var configRows = rowsOf(
	map[string]row{},
	"test/config.TestBadLimitUnit",
	"test/config.TestBadYaml",
	"test/config.TestBasicConfig",
	"test/config.TestConfigLimitOverride",
	"test/config.TestDetailedMetric",
	"test/config.TestDetailedMetric/nested_with_no_values_and_request_fully_nested_descriptors",
	"test/config.TestDetailedMetric/nested_with_no_values_and_request_fully_nested_descriptors_with_no_detailed_metric",
	"test/config.TestDetailedMetric/nested_with_no_values_but_request_only_top-level_key",
	"test/config.TestDetailedMetric/nested_with_no_values_but_request_only_top-level_key_with_no_detailed_metric",
	"test/config.TestDetailedMetric/test_nested_descriptors_with_nested_request",
	"test/config.TestDetailedMetric/test_nested_descriptors_with_simple_request",
	"test/config.TestDetailedMetric/test_nested_only_second_descriptor_request_not_nested",
	"test/config.TestDomainMerge",
	"test/config.TestDuplicateDomain",
	"test/config.TestDuplicateKey",
	"test/config.TestDuplicateKeyDomainMerge",
	"test/config.TestEmptyDomain",
	"test/config.TestEmptyKey",
	"test/config.TestMisspelledKey",
	"test/config.TestNonMapList",
	"test/config.TestNonStringKey",
	"test/config.TestReplacesEmpty",
	"test/config.TestReplacesSelf",
	"test/config.TestShadowModeConfig",
	"test/config.TestShareThreshold",
	"test/config.TestShareThreshold/Basic_share_threshold",
	"test/config.TestShareThreshold/Explicit_value_precedence_over_wildcard",
	"test/config.TestShareThreshold/Nested_wildcards",
	"test/config.TestShareThreshold/share_threshold_with_metrics",
	"test/config.TestUnlimitedWithRateLimitUnit",
	"test/config.TestValueToMetric_DefaultKeyIncludesValueAtThatLevel",
	"test/config.TestValueToMetric_DoesNotOverrideDetailedMetric",
	"test/config.TestValueToMetric_FullKeyMatchesStatsKey",
	"test/config.TestValueToMetric_MidLevelOnly",
	"test/config.TestValueToMetric_NoFlag_Unchanged",
	"test/config.TestValueToMetric_UsesRuntimeValuesInStats",
	"test/config.TestValueToMetric_WithConfiguredValues",
	"test/config.TestValueToMetric_WithEmptyValue",
	"test/config.TestValueToMetric_WithWildcard",
	"test/config.TestWildcardConfig",
	"test/config.TestWildcardStatsBehavior",
	"test/config.TestWildcardStatsBehavior/No_flags_-_preserves_original_behavior_with_wildcard_pattern",
	"test/config.TestWildcardStatsBehavior/share_threshold_-_uses_wildcard_pattern_with_*",
	"test/config.TestWildcardStatsBehavior/share_threshold_with_value_to_metric_-_share_threshold_takes_priority",
	"test/config.TestWildcardStatsBehavior/value_to_metric_-_uses_runtime_value",
	"test/config.TestWildcardStatsBehavior/value_to_metric_in_other_descriptor_-_wildcard_pattern_preserved",
)
