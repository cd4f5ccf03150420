package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// TestExpressions finds descriptors by the values that their expressions fit.
func TestExpressions(t *testing.T) {
	s := parse(t, `
domain: d
descriptors:
- {key: path, value: "/users/me", rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value_regex: "/users/[0-9]+", rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: "/users/*", rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value_regex: "(?i)/ADMIN|/root", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value_regex: "/v[0-9]", value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: empty, value_regex: "x*", rate_limit: {unit: day, requests_per_unit: 1}}
`)
	long := "/users/" + strings.Repeat("1", 2000)
	for _, c := range []struct{ key, value, path, counted, metric string }{
		{"path", "/users/me", "d.path_/users/me", "d|path=/users/me", "d.path_/users/me"},
		{"path", "/users/12", "d.path_~/users/[0-9]+", "d|path=/users/12", "d.path_~/users/[0-9]+"},
		{"path", "/users/12x", "d.path_/users/*", "d|path=/users/12x", "d.path_/users/*"}, // the whole value
		{"path", "/users/12\n", "d.path_/users/*", "d|path=/users/12\n", "d.path_/users/*"},
		{"path", "/admin", "d.path_~(?i)/ADMIN|/root", "d|path=~(?i)/ADMIN\\|/root", "d.path_~(?i)/ADMIN|/root"},
		{"path", "/root", "d.path_~(?i)/ADMIN|/root", "d|path=~(?i)/ADMIN\\|/root", "d.path_~(?i)/ADMIN|/root"},
		{"path", "/v7", "d.path_~/v[0-9]", "d|path=/v7", "d.path_/v7"},
		{"path", "~/v[0-9]", "d.path", "d|path=~/v[0-9]", "d.path"}, // the name of a descriptor is no value
		{"path_~/v[0-9]", "", "", "", ""},
		{"path", "/other", "d.path", "d|path=/other", "d.path"},
		{"empty", "", "d.empty_~x*", "d|empty=", "d.empty_~x*"},
		{"empty", "y", "", "", ""},
	} {
		m, _ := s.Find("d", entries(c.key, c.value))
		got := [3]string{"", m.Key, m.Metric}
		if m.Rule != nil {
			got[0] = m.Rule.Path
		}
		if want := [3]string{c.path, c.counted, c.metric}; got != want {
			t.Errorf("%s=%q: %q, want %q", c.key, c.value, got, want)
		}
	}
	if m, _ := s.Find("d", entries("path", long)); m.Rule == nil || m.Rule.Path != "d.path_/users/*" {
		t.Errorf("a long value: %+v, want what is behind the expressions", m)
	}
	for _, text := range []string{`\Qa.b`, `\Qa.b\E`, `(?m)a\.b`, `(?i)A\.B`} { // a quotation that is open
		s := parse(t, "domain: d\ndescriptors:\n- {key: k, value_regex: '"+text+"', rate_limit: {unit: day, requests_per_unit: 1}}\n")
		for value, fits := range map[string]bool{"a.b": true, "axb": false, "a.b)": false, "a.b\na.b": false} {
			if m, _ := s.Find("d", entries("k", value)); (m.Rule != nil) != fits {
				t.Errorf("%s: %q fits: %t", text, value, m.Rule != nil)
			}
		}
	}
}

// TestBadExpressions and multipliers.
func TestBadExpressions(t *testing.T) {
	limit := ", rate_limit: {unit: day, requests_per_unit: 1}}\n"
	for text, want := range map[string]string{
		`{key: a, value: b, value_regex: c` + limit:                                                  `value_regex: must not be beside value`,
		`{key: a, value_regex: ""` + limit:                                                           `value_regex: must not be empty`,
		`{key: a, value_regex: "("` + limit:                                                          "value_regex: (\"(\") must be an expression in the syntax of RE2: error parsing regexp: missing closing ): `(`",
		`{key: a, value_regex: "(?=a)"` + limit:                                                      "value_regex: (\"(?=a)\") must be an expression in the syntax of RE2: error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
		`{key: a, value_regex: "a{1000}b{500}"` + limit:                                              `value_regex: ("a{1000}b{500}") and those before it in its list make programs of more than 1000 steps`,
		`{key: a, value_regex: ` + strings.Repeat("a", 1001) + limit:                                 `value_regex: has 1001 bytes; the most are 1000`,
		`{key: a, value_regex: [b]` + limit:                                                          `value_regex: must be a text, and is a list`,
		`{key: a, rate_limit: {unit: day, unit_multiplier: 0, requests_per_unit: 1}}`:                `unit_multiplier: must be a whole number from 1 to 4294967295, and is 0`,
		`{key: a, rate_limit: {unit: day, unit_multiplier: 12776, requests_per_unit: 1}}`:            `unit_multiplier: (12776) must be 1 to 12775 for the unit day`,
		`{key: a, unit_multiplier: 2, rate_limit: {unit: day, requests_per_unit: 1}}`:                `unit_multiplier: is a field of rate_limit, and not of this object`,
		`{key: a, rate_limit: {unlimited: true, unit_multiplier: 2}}`:                                `unit_multiplier: must not be there: the rule is unlimited`,
		`{key: a, rate_limit: {unit: day, unit_multiplier: 2, calendar: UTC, requests_per_unit: 1}}`: `calendar: must not be with unit_multiplier: its period is one unit`,
	} {
		_, err := rules.Parse([]rules.File{{Name: "test.yaml", Data: []byte("domain: d\ndescriptors:\n- " + text)}}, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

// TestMultipliers make windows of several units.
func TestMultipliers(t *testing.T) {
	s := parse(t, `
domain: d
descriptors:
- {key: a, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 7}}
- {key: b, rate_limit: {unit: second, unit_multiplier: ~, requests_per_unit: 7}}
- {key: c, rate_limit: {unit: hour, unit_multiplier: 1, requests_per_unit: 7, algorithm: token bucket, burst: 2}}
`)
	for i, want := range []string{"7/5m0s fixed window", "7/1s fixed window", "7/1h0m0s token bucket"} {
		r := s.Rules()[i]
		if got := fmt.Sprintf("%d/%v %v", r.Limit.Rate, r.Limit.Period, r.Limit.Algorithm); got != want || r.Multiplier != [...]uint32{5, 0, 1}[i] {
			t.Errorf("%s: %s and %d, want %s", r.Path, got, r.Multiplier, want)
		}
	}
}
