package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// bank has limits with floors in each place.
const bank = `
domain: bank
descriptors:
  - key: account
    rate_limit: {name: all, unit: second, requests_per_unit: 100, algorithm: token_bucket, replaces: [{name: old}]}
    descriptors:
      - key: priority
        floor: 0.5
      - key: priority
        value: critical
        floor: 0
      - key: priority
        value: batch*
        value_to_metric: true
        floor: 0.2
        descriptors:
          - key: step
            detailed_metric: true
            floor: .25
          - key: own
            rate_limit: {unit: day, requests_per_unit: 7}
      - key: region
        descriptors:
          - key: priority
            shadow_mode: true
            floor: 5e-1
  - key: host
    value: a*
    share_threshold: true
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 10}
    descriptors:
      - key: priority
        floor: 0.1
  - key: none
    floor: ~
`

// A floor makes a rule with the limit of the nearest descriptor around it.
func TestFloors(t *testing.T) {
	s := parse(t, bank)
	var got strings.Builder
	for _, r := range s.Rules() {
		if r.Of == nil {
			fmt.Fprintf(&got, "%s\n", r.Path)
			continue
		}
		fmt.Fprintf(&got, "%s:%d %s: floor %v of %s, shadow %t, quota %t, named %q, same %t\n", r.File, r.Line, r.Path, r.Floor, r.Of.Path, r.Shadow, r.Quota,
			r.Name, r.Limit == r.Of.Limit && r.RequestsPerUnit == r.Of.RequestsPerUnit && r.Domain == r.Of.Domain && len(r.Replaces) == len(r.Of.Replaces))
	}
	want := `bank.account
a.yaml:8 bank.account.priority: floor 0.5 of bank.account, shadow false, quota false, named "all", same true
a.yaml:11 bank.account.priority_critical: floor 0 of bank.account, shadow false, quota false, named "all", same true
a.yaml:15 bank.account.priority_batch*: floor 0.2 of bank.account, shadow false, quota false, named "all", same true
a.yaml:19 bank.account.priority_batch*.step: floor 0.25 of bank.account, shadow false, quota false, named "all", same true
bank.account.priority_batch*.own
a.yaml:26 bank.account.region.priority: floor 0.5 of bank.account, shadow true, quota false, named "all", same true
bank.host_a*
a.yaml:34 bank.host_a*.priority: floor 0.1 of bank.host_a*, shadow false, quota true, named "", same true
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	if w := s.Warnings(); len(w) > 0 {
		t.Error(w)
	}
}

// The calls of a descriptor with a floor count as those of the descriptor with the limit, and have a metric of their own.
func TestFindOfFloors(t *testing.T) {
	s := parse(t, bank)
	long := strings.Repeat("x", 300)
	hashed, _ := s.Find("bank", entries("account", long))
	for _, c := range []struct {
		entries           []string
		path, key, metric string
	}{
		{[]string{"account", "a"}, "bank.account", "bank|account=a", "bank.account"},
		{[]string{"account", "a", "priority", "x"}, "bank.account.priority", "bank|account=a", "bank.account.priority"},
		{[]string{"account", "a", "priority", ""}, "bank.account.priority", "bank|account=a", "bank.account.priority"},
		{[]string{"account", "b", "priority", "critical"}, "bank.account.priority_critical", "bank|account=b", "bank.account.priority_critical"},
		{[]string{"account", "a", "priority", "batch1"}, "bank.account.priority_batch*", "bank|account=a", "bank.account.priority_batch1"},
		{[]string{"account", "a", "priority", "batch1", "step", "s"}, "bank.account.priority_batch*.step", "bank|account=a", "bank.account_a.priority_batch1.step_s"},
		{[]string{"account", "a", "priority", "batch1", "own", "s"}, "bank.account.priority_batch*.own", "bank|account=a|priority=batch1|own=s", "bank.account.priority_batch1.own"},
		{[]string{"account", "a", "region", "eu", "priority", "p"}, "bank.account.region.priority", "bank|account=a", "bank.account.region.priority"},
		{[]string{"account", "a", "region", "eu"}, "", "", ""},
		{[]string{"host", "a1", "priority", "x"}, "bank.host_a*.priority", "bank|host=a*", "bank.host_a*.priority"},
		{[]string{"account", long, "priority", "x"}, "bank.account.priority", hashed.Key, "bank.account.priority"},
		{[]string{"account", "a", "priority", long}, "bank.account.priority", "bank|account=a", "bank.account.priority"},
		{[]string{"none", "x"}, "", "", ""},
	} {
		m, _ := s.Find("bank", entries(c.entries...))
		path := ""
		if m.Rule != nil {
			path = m.Rule.Path
		}
		if path != c.path || m.Key != c.key || m.Metric != c.metric {
			t.Errorf("%.60q: %q, key %q, metric %q, want %q, %q, %q", c.entries, path, m.Key, m.Metric, c.path, c.key, c.metric)
		}
	}
}

// floored returns a file with a limit, and a descriptor inside it with the given fields.
func floored(limit, fields string) string {
	return "domain: d\ndescriptors:\n- key: k\n  rate_limit: {" + limit + "}\n  descriptors:\n  - {key: p, " + fields + "}\n"
}

const (
	bucket = "unit: day, requests_per_unit: 10, algorithm: token bucket"
	window = "rate_limit: {unit: day, requests_per_unit: 10}"
)

func TestViolationsOfFloors(t *testing.T) {
	number := "a.yaml:6: d.k.p.floor: must be a number from 0 to 0.5, and is "
	eight, seven := "", ""
	for i := range 8 {
		if eight += fmt.Sprintf("  - {key: p%d, floor: 0.%02d}\n", i, i+1); i == 6 {
			seven = eight
		}
	}
	many := "domain: d\ndescriptors:\n- key: k\n  " + window + "\n  descriptors:\n"
	for _, c := range []struct{ text, want string }{
		{floored(bucket, "floor: x"), number + `"x"`},
		{floored(bucket, "floor: '0.2'"), number + `"0.2"`},
		{floored(bucket, "floor: .nan"), number + `".nan"`},
		{floored(bucket, "floor: nan"), number + "nan"},
		{floored(bucket, "floor: .inf"), number + `".inf"`},
		{floored(bucket, "floor: -0.1"), number + "-0.1"},
		{floored(bucket, "floor: 0.51"), number + "0.51"},
		{floored(bucket, "floor: 20%"), number + `"20%"`},
		{floored(bucket, "floor: true"), number + "true"},
		{floored(bucket, "floor: [0.2]"), number + "a list"},
		{floored(bucket, "floor: {}"), number + "an object"},
		{floored(bucket, "floor: !!str 0.2"), number + `!!str "0.2"`},
		{floored(bucket, "flor: 0.2"), "a.yaml:6: d.k.descriptors[0].flor: is not a field; is it floor?"},
		{floored(bucket, "floor: 0.2, floor: 0.2"), "a.yaml:6: d.k.descriptors[0].floor: is a duplicate; the first is in line 6"},
		{floored(bucket, "floor: 0.2, "+window), "a.yaml:6: d.k.p.floor: must not be beside rate_limit: it is of calls that use the limit of a descriptor around them"},
		{floored(bucket, "floor: 2, "+window), number + "2\na.yaml:6: d.k.p.floor: must not be beside rate_limit: it is of calls that use the limit of a descriptor around them"},
		{floored(bucket, "floor: 0.2, rate_limit: {unlimited: true}"), "a.yaml:6: d.k.p.floor: must not be beside rate_limit: it is of calls that use the limit of a descriptor around them"},
		{floored("unlimited: true", "floor: 0.2"), "a.yaml:6: d.k.p.floor: must not be inside d.k, which is unlimited"},
		{floored("unit: day, requests_per_unit: 10, algorithm: sliding log", "floor: 0.2"), "a.yaml:6: d.k.p.floor: must not be inside d.k: a sliding log has no floors"},
		{floored("unit: day, requests_per_unit: 10, algorithm: sliding log", "floor: 0"), "a.yaml:6: d.k.p.floor: must not be inside d.k: a sliding log has no floors"},
		{"domain: d\ndescriptors:\n- key: k\n  floor: 0.2\n", "a.yaml:4: d.k.floor: must be inside a descriptor with rate_limit, whose limit its calls use"},
		{"domain: d\ndescriptors:\n- {key: k, descriptors: [{key: p, floor: 0}]}\n- {key: l, " + window + "}", "a.yaml:3: d.k.p.floor: must be inside a descriptor with rate_limit, whose limit its calls use"},
		{"domain: d\nfloor: 0.2", "a.yaml:2: floor: is a field of a descriptor, and not of this object"},
		{rule("unit: day, requests_per_unit: 1, floor: 0.2"), "a.yaml:4: d.k.rate_limit.floor: is a field of a descriptor, and not of this object"},
		{floored("unit: x, requests_per_unit: 10", "floor: 0.2"), `a.yaml:4: d.k.rate_limit.unit: ("x") must be second, minute, hour, day, week, month or year`},
		{many + eight, "a.yaml:13: d.k.p7.floor: (0.08) is one more than 7 different floors, the most in a domain for one algorithm, overshoot and split"},
		{many + seven + "- key: l\n  " + window + "\n  descriptors: [{key: a, floor: 0.07}, {key: b, floor: 0.5}]\n", "a.yaml:15: d.l.b.floor: (0.5) is one more than 7 different floors, the most in a domain for one algorithm, overshoot and split"},
	} {
		s, err := rules.Parse(files([]string{c.text}), false)
		if err == nil || s != nil {
			t.Errorf("%q: %v, %v", c.text, s, err)
			continue
		}
		if got := err.Error(); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
	// Seven floors of a kind are valid. Other algorithms and domains have seven of their own.
	parse(t, many+seven+"- key: l\n  rate_limit: {"+bucket+"}\n  descriptors: [{key: a, floor: 0.5}]\n", "domain: e\ndescriptors:\n- key: l\n  "+window+"\n  descriptors: [{key: a, floor: 0.5}]\n")
}

func TestWarningsOfFloors(t *testing.T) {
	one := "unit: day, requests_per_unit: 1"
	if w := parse(t, floored(one, "floor: 0.2")).Warnings(); len(w) != 1 || w[0].Error() != "a.yaml:6: d.k.p.floor: leaves nothing to other calls: the limit has one unit" {
		t.Error(w)
	}
	for _, text := range []string{floored(one, "floor: 0"), floored("unit: day, requests_per_unit: 2", "floor: 0.01, shadow_mode: true"), floored("unit: day, requests_per_unit: 0", "floor: 0.2")} {
		if w := parse(t, text).Warnings(); len(w) > 0 {
			t.Errorf("%q: %v", text, w)
		}
	}
}
