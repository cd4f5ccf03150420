package rls

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

func rule(rest string) string {
	return "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: day, " + rest + "}\n  - key: other\n    rate_limit: {unit: day, requests_per_unit: 10}\n"
}

// use sends requests for a key and returns the number that was admitted.
func use(t *testing.T, s *Service, requests int) (admitted int) {
	t.Helper()
	for range requests {
		if strings.HasPrefix(ask(t, s, request("shop", desc("user", "a"))), "ok:") {
			admitted++
		}
	}
	return admitted
}

// A changed rule takes effect with the next request and refills nothing. An unchanged
// rule keeps its count. Only units of a lease that are in hand may be spent above a
// smaller limit.
func TestReload(t *testing.T) {
	removed := "domain: shop\ndescriptors: []\n"
	for name, c := range map[string]struct {
		before int      // requests under a limit of 5
		rules  []string // loaded one after the other
		want   int      // of 20 requests
	}{
		"unchanged":         {3, []string{rule("requests_per_unit: 5"), rule("requests_per_unit: 5")}, 2},
		"raised":            {3, []string{rule("requests_per_unit: 10")}, 7},
		"lowered":           {3, []string{rule("requests_per_unit: 4")}, 1},
		"lowered below":     {5, []string{rule("requests_per_unit: 4")}, 0},
		"blocked":           {3, []string{rule("requests_per_unit: 0")}, 0},
		"blocked and back":  {3, []string{rule("requests_per_unit: 0"), rule("requests_per_unit: 5")}, 2},
		"removed":           {3, []string{removed}, 20},
		"removed and back":  {3, []string{removed, rule("requests_per_unit: 6")}, 3},
		"another algorithm": {5, []string{rule("requests_per_unit: 5, algorithm: sliding_window")}, 5},
		"and back":          {4, []string{rule("requests_per_unit: 5, algorithm: sliding_window"), rule("requests_per_unit: 5")}, 1},
		"shadow":            {5, []string{strings.Replace(rule("requests_per_unit: 5"), "rate", "shadow_mode: true\n    rate", 1)}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, rule("requests_per_unit: 5"), Options{})
			if got := use(t, s, c.before); got != c.before {
				t.Fatalf("%d of %d were admitted", got, c.before)
			}
			l, err := s.limiters.get(kind{domain: "shop", algorithm: hybridlimit.AlgFixedWindow})
			if err != nil {
				t.Fatal(err)
			}
			held := int(l.Stats().Held)
			for _, rules := range c.rules {
				load(t, s, rules)
			}
			got := use(t, s, 20)
			if more := got - c.want; more < 0 || more > 0 && (!strings.HasPrefix(name, "lowered") || more > held) {
				t.Errorf("%d more were admitted, want %d; %d were in hand", got, c.want, held)
			}
			if got := s.metrics.loads.Load(); got != uint64(1+len(c.rules)) {
				t.Errorf("%d loads are counted", got)
			}
		})
	}
}

// Rules that are not valid leave those before in force.
func TestReloadOfBrokenRules(t *testing.T) {
	s := newService(t, rule("requests_per_unit: 2"), Options{})
	before := s.Rules()
	if _, err := ParseRules([]File{{Name: "f.yaml", Data: []byte(rule("requests_per_unit: -1"))}}, false); err == nil || !strings.Contains(err.Error(), "f.yaml:4") {
		t.Errorf("the error is %v", err)
	}
	if s.Rules() != before {
		t.Error("other rules are in force")
	}
}
