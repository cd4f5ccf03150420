package rules_test

import (
	"fmt"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// shop has each feature once.
const shop = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: user
    value: ann
    shadow_mode: true
    rate_limit: {unit: MINUTE, requests_per_unit: 30, name: ann, replaces: [{name: all}, {name: old}]}
  - key: user
    value: none
  - key: path
    value: /a/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 1_000}
  - key: path
    value: /a/b*
    rate_limit: {unit: day, requests_per_unit: 0x10, algorithm: sliding_window}
  - key: path
    value: /c*
    quota_mode: yes
    value_to_metric: on
    rate_limit: {unit: week, requests_per_unit: 5, algorithm: token_bucket, burst: 9, overshoot: 0.5, split: 4}
    descriptors:
      - key: method
        value: GET
        detailed_metric: true
        rate_limit: {unit: month, requests_per_unit: 6, algorithm: GCRA, overshoot: 0}
      - key: method
        rate_limit: {unit: year, requests_per_unit: 0}
  - key: free
    rate_limit: {unlimited: true}
`

// parse returns the rules of a text.
func parse(t testing.TB, texts ...string) *rules.Set {
	t.Helper()
	s, err := rules.Parse(files(texts), true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func files(texts []string) (all []rules.File) {
	for i, text := range texts {
		all = append(all, rules.File{Name: fmt.Sprintf("%c.yaml", 'a'+i), Data: []byte(text)})
	}
	return all
}

// entries returns a descriptor of keys and values.
func entries(keysAndValues ...string) *ratelimit.RateLimitDescriptor {
	d := &ratelimit.RateLimitDescriptor{}
	for i := 0; i < len(keysAndValues); i += 2 {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return d
}

// dump returns one line for each rule.
func dump(s *rules.Set) string {
	var text strings.Builder
	for _, r := range s.Rules() {
		fmt.Fprintf(&text, "%s:%d %s: %d/%v", r.File, r.Line, r.Path, r.RequestsPerUnit, r.Unit)
		if !r.Unlimited {
			fmt.Fprintf(&text, " = %v", r.Limit)
		}
		for _, f := range []struct {
			set  bool
			text string
		}{
			{r.Unlimited, "unlimited"},
			{r.Shadow, "shadow"},
			{r.Quota, "quota"},
			{r.DetailedMetric, "detailed"},
			{r.Name != "", "name " + r.Name},
			{len(r.Replaces) > 0, fmt.Sprint("replaces ", r.Replaces)},
			{r.Overshoot != 0, fmt.Sprint("overshoot ", r.Overshoot)},
			{r.Split != 0, fmt.Sprint("split ", r.Split)},
		} {
			if f.set {
				text.WriteString(", " + f.text)
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}

func TestParse(t *testing.T) {
	const want = `a.yaml:5 shop.user: 20/MINUTE = 20 per 1m0s (fixed window)
a.yaml:9 shop.user_ann: 30/MINUTE = 30 per 1m0s (fixed window), shadow, name ann, replaces [all old]
a.yaml:15 shop.path_/a/*: 1000/HOUR = 1000 per 1h0m0s (fixed window)
a.yaml:18 shop.path_/a/b*: 16/DAY = 16 per 24h0m0s (sliding window)
a.yaml:23 shop.path_/c*: 5/WEEK = 5 per 168h0m0s, burst 9 (token bucket), quota, overshoot 0.5, split 4
a.yaml:28 shop.path_/c*.method_GET: 6/MONTH = 6 per 720h0m0s, burst 6 (token bucket), detailed
a.yaml:30 shop.path_/c*.method: 0/YEAR = blocked
a.yaml:32 shop.free: 0/UNKNOWN, unlimited
`
	s := parse(t, shop)
	if got := dump(s); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := s.Warnings(); len(got) > 0 {
		t.Errorf("warnings %v", got)
	}
	if got := fmt.Sprint(s.Domains()); got != "[shop]" {
		t.Errorf("domains %s", got)
	}
}

func TestFind(t *testing.T) {
	s := parse(t, shop)
	for _, c := range []struct {
		entries           []string
		path, key, metric string
	}{
		{[]string{"user", "bob"}, "shop.user", "shop|user=bob", "shop.user"},
		{[]string{"user", "ann"}, "shop.user_ann", "shop|user=ann", "shop.user_ann"},
		{[]string{"user", ""}, "shop.user", "shop|user=", "shop.user"},
		{[]string{"user", "none"}, "", "", ""},
		{[]string{"user", "bob", "more", ""}, "", "", ""},
		{[]string{"path", "/a/x"}, "shop.path_/a/*", "shop|path=/a/*", "shop.path_/a/*"},
		{[]string{"path", "/a/b"}, "shop.path_/a/*", "shop|path=/a/*", "shop.path_/a/*"},
		{[]string{"path", "/a/b*"}, "shop.path_/a/b*", "shop|path=/a/b*", "shop.path_/a/b*"},
		{[]string{"path", "/c|"}, "shop.path_/c*", `shop|path=/c\|`, "shop.path_/c|"},
		{[]string{"path", "/c", "method", "PUT"}, "shop.path_/c*.method", "shop|path=/c|method=PUT", "shop.path_/c.method"},
		{[]string{"path", "/c", "method", "GET"}, "shop.path_/c*.method_GET", "shop|path=/c|method=GET", "shop.path_/c.method_GET"},
		{[]string{"free", "x"}, "shop.free", "shop|free=x", "shop.free"},
		{[]string{"path", "/d"}, "", "", ""},
		{nil, "", "", ""},
	} {
		m, known := s.Find("shop", entries(c.entries...))
		path := ""
		if m.Rule != nil {
			path = m.Rule.Path
		}
		if !known || path != c.path || m.Key != c.key || m.Metric != c.metric {
			t.Errorf("%q: %v %q, key %q, metric %q, want %q, %q, %q", c.entries, known, path, m.Key, m.Metric, c.path, c.key, c.metric)
		}
	}
	if m, known := s.Find("other", entries("user", "ann")); known || m.Rule != nil {
		t.Errorf("%v, %v in an unknown domain", m, known)
	}
	if _, known := (&rules.Set{}).Find("shop", nil); known {
		t.Error("the zero Set knows a domain")
	}
}
