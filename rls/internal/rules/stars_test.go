package rules_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// TestStars has asterisks at any place of key_value.
func TestStars(t *testing.T) {
	s := parse(t, `
domain: d
descriptors:
- {key: path, value: "/a/*/b", rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: "/a*", rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: "*.png", rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: "/a/literal*", rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: "/x*y*z", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: "/v*w", value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: "ke*", value: "v", rate_limit: {unit: day, requests_per_unit: 1}}
- {key: "**", value: "q", rate_limit: {unit: day, requests_per_unit: 1}}
`)
	for _, c := range []struct{ key, value, path, counted, metric string }{
		{"path", "/a/x/b", "d.path_/a/*/b", "d|path=/a/x/b", "d.path_/a/*/b"},
		{"path", "/a//b", "d.path_/a/*/b", "d|path=/a//b", "d.path_/a/*/b"},
		{"path", "/a/b", "d.path_/a*", "d|path=/a/b", "d.path_/a*"}, // no overlap
		{"path", "/a/x/b/", "d.path_/a*", "d|path=/a/x/b/", "d.path_/a*"},
		{"path", "/a/x.png", "d.path_/a*", "d|path=/a/x.png", "d.path_/a*"}, // the first one in the file
		{"path", "/b/x.png", "d.path_*.png", "d|path=/b/x.png", "d.path_*.png"},
		{"path", ".png", "d.path_*.png", "d|path=.png", "d.path_*.png"},
		{"path", "/a/literal*", "d.path_/a/literal*", "d|path=/a/literal*", "d.path_/a/literal*"}, // the name itself
		{"path", "/x1y2z", "d.path_/x*y*z", "d|path=/x*y*z", "d.path_/x*y*z"},
		{"path", "/xyz", "d.path_/x*y*z", "d|path=/x*y*z", "d.path_/x*y*z"},
		{"path", "/xzy", "d.path", "d|path=/xzy", "d.path"},
		{"path", "/v12w", "d.path_/v*w", "d|path=/v12w", "d.path_/v12w"},
		{"key", "v", "d.ke*_v", "d|key=v", "d.key_ke*_v"},
		{"other", "q", "d.**_q", "d|other=q", "d.other_**_q"},
		{"other", "r", "", "", ""},
	} {
		m, _ := s.Find("d", entries(c.key, c.value))
		got := [3]string{"", m.Key, m.Metric}
		if m.Rule != nil {
			got[0] = m.Rule.Path
		}
		if want := [3]string{c.path, c.counted, c.metric}; got != want {
			t.Errorf("%s=%s: %q, want %q", c.key, c.value, got, want)
		}
	}
}

// TestStarsAreExpressions compares drawn patterns and texts with regular expressions. The first one in the file wins.
func TestStarsAreExpressions(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 41))
	text := func(alphabet string, most int) string {
		var b strings.Builder
		for range rng.IntN(most + 1) {
			b.WriteByte(alphabet[rng.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range testenv.Runs(300, 5000) {
		yaml := "domain: d\ndescriptors:\n"
		var names []string
		seen := map[string]bool{}
		for range 1 + rng.IntN(6) {
			value := text("ab**", 6)
			if name := "k_" + value; !seen[name] && value != "" {
				seen[name], names = true, append(names, name)
				yaml += fmt.Sprintf("- {key: k, value: %q, rate_limit: {unit: day, requests_per_unit: 1}}\n", value)
			}
		}
		if len(names) == 0 {
			continue
		}
		s := parse(t, yaml)
		for range 20 {
			value := text("abab*", 7)
			want := ""
			if seen["k_"+value] {
				want = "d.k_" + value
			}
			for _, name := range names {
				expression := strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, ".*")
				if want == "" && strings.Contains(name, "*") && regexp.MustCompile("^"+expression+"$").MatchString("k_"+value) {
					want = "d." + name
				}
			}
			m, _ := s.Find("d", entries("k", value))
			got := ""
			if m.Rule != nil {
				got = m.Rule.Path
			}
			if got != want {
				t.Fatalf("%s\n%q leads to %q, want %q", yaml, value, got, want)
			}
		}
	}
}

// TestMetadataOfARule reads any object.
func TestMetadataOfARule(t *testing.T) {
	s := parse(t, `
domain: d
descriptors:
- key: a
  metadata: &m
    text: x
    "1": yes
    2: 0x10
    float: 1.5e3
    date: 2026-11-28
    none: ~
    list: [1, {b: c}, [d]]
    inf: .inf
  rate_limit: {unit: day, requests_per_unit: 1}
- key: b
  metadata: {<<: *m, text: own}
  rate_limit: {unit: day, requests_per_unit: 1}
- key: c
  metadata: {}
  rate_limit: {unit: day, requests_per_unit: 1}
  descriptors:
  - {key: floored, floor: 0.2, metadata: {floor: true}}
`)
	want := map[string]string{
		"d.a":         `map[1:true 2:16 date:2026-11-28 float:1500 inf:.inf list:[1 map[b:c] [d]] none:<nil> text:x]`,
		"d.b":         `map[1:true 2:16 date:2026-11-28 float:1500 inf:.inf list:[1 map[b:c] [d]] none:<nil> text:own]`,
		"d.c":         `map[]`,
		"d.c.floored": `map[floor:true]`,
	}
	for _, r := range s.Rules() {
		if got := fmt.Sprint(r.Metadata.AsMap()); got != want[r.Path] {
			t.Errorf("%s: %s, want %s", r.Path, got, want[r.Path])
		}
	}
}

// TestBadMetadata checks the errors.
func TestBadMetadata(t *testing.T) {
	for metadata, want := range map[string]string{
		"[a]":          `test.yaml:3: d.a.metadata: must be an object, and is a list`,
		"x":            `test.yaml:3: d.a.metadata: must be an object, and is "x"`,
		"{a: 1, a: 2}": `test.yaml:3: d.a.metadata.a: is a duplicate`,
		"{[a]: 1}":     `test.yaml:3: d.a.metadata: has a field whose name is a list`,
		"{<<: 1}":      `test.yaml:3: d.a.metadata: must merge objects, and merges 1`,
		"{a: " + strings.Repeat("x", 17000) + "}": `test.yaml:3: d.a.metadata: is larger than 16384 bytes, and each answer repeats it`,
	} {
		_, err := rules.Parse([]rules.File{{Name: "test.yaml", Data: []byte("domain: d\ndescriptors:\n- {key: a, metadata: " + metadata + ", rate_limit: {unit: day, requests_per_unit: 1}}\n")}}, false)
		if err == nil || err.Error() != want {
			t.Errorf("%.20s: %v, want %s", metadata, err, want)
		}
	}
}

// TestMetadataOfManyRules bounds the metadata of all rules: an alias is made again for each of them.
//
// Regression: 159 KB made 693 MB.
func TestMetadataOfManyRules(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n- {key: k0, metadata: &m {a: [" + strings.Repeat("{}, ", 1500) + "{}]}, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	for i := range 2000 {
		fmt.Fprintf(&b, "- {key: k%d, metadata: *m, rate_limit: {unit: day, requests_per_unit: 1}}\n", i+1)
	}
	_, err := rules.Parse([]rules.File{{Name: "a", Data: []byte(b.String())}}, false)
	if err == nil || !strings.Contains(err.Error(), "makes the metadata of all rules larger than 16777216 bytes") {
		t.Errorf("%.200v", err)
	}
}
