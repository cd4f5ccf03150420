package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// Find allocates the Key, and the Metric if it has values of the descriptor.
func TestFindAllocates(t *testing.T) {
	s := parse(t, shop)
	for _, c := range []struct {
		entries []string
		want    float64
	}{
		{[]string{"user", "bob"}, 1},
		{[]string{"user", "ann"}, 1},
		{[]string{"path", "/a/b"}, 1},
		{[]string{"path", "/c", "method", "PUT"}, 2},
		{[]string{"path", "/c", "method", "GET"}, 2},
		{[]string{"path", "/unknown"}, 0},
		{[]string{"user", strings.Repeat("x", 5000)}, 1},
	} {
		d := entries(c.entries...)
		if got := testing.AllocsPerRun(100, func() { s.Find("shop", d) }); got > c.want {
			t.Errorf("%.40q: %v allocations, want %v", c.entries, got, c.want)
		}
	}
}

// The first wildcard in the file wins, among thousands.
func TestManyWildcards(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "- {key: k, value: '%d*', rate_limit: {unit: day, requests_per_unit: %d}}\n", 5000-i, i)
	}
	s := parse(t, text.String())
	for _, c := range []struct{ value, want string }{
		{"4999", "d.k_4999*"},
		{"49990", "d.k_4999*"},
		{"49", "d.k_49*"},
		{"50000", "d.k_5000*"},
		{"50", "d.k_50*"},
		{"9999", "d.k_999*"},
		{"9", "d.k_9*"},
		{"0", ""},
		{"", ""},
	} {
		m, _ := s.Find("d", entries("k", c.value))
		got := ""
		if m.Rule != nil {
			got = m.Rule.Path
		}
		if got != c.want {
			t.Errorf("%s leads to %q, want %q", c.value, got, c.want)
		}
	}
}

// The time of Find grows with the bytes of a descriptor, and not with their square: 64 entries of 1 MB do not take
// much longer than sixteen times four of them, which are as many bytes.
func TestFindIsLinear(t *testing.T) {
	text := "domain: d\ndescriptors: " + strings.Repeat("[{key: k, value_to_metric: true, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: ", 32) + strings.Repeat("}]", 32)
	s := parse(t, text)
	big := strings.Repeat("x", 1<<20)
	of := func(n int) *ratelimit.RateLimitDescriptor {
		var kv []string
		for range n {
			kv = append(kv, "k", big)
		}
		return entries(kv...)
	}
	if m, known := s.Find("d", of(64)); !known || m.Rule != nil {
		t.Errorf("%v for more entries than levels", m.Rule)
	}
	if m, _ := s.Find("d", of(32)); m.Rule == nil || len(m.Key) > 200 {
		t.Error("no rule for as many entries as levels")
	}
	ratio := func() float64 {
		fastest := func(d *ratelimit.RateLimitDescriptor, times int) time.Duration {
			best := time.Hour
			for range 3 {
				start := time.Now()
				for range times {
					s.Find("d", d)
				}
				best = min(best, time.Since(start))
			}
			return best
		}
		return float64(fastest(of(32), 1)) / float64(fastest(of(4), 8))
	}
	// Quadratic time would make this 8. A busy machine slows both: the least of some tries counts.
	least := ratio()
	for range 4 {
		if least < 3 {
			return
		}
		least = min(least, ratio())
	}
	t.Errorf("32 entries take %.1f times as long as eight times 4 entries", least)
}

func BenchmarkFind(b *testing.B) {
	s := parse(b, shop)
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "- {key: k, value: '/%d/*', rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	many := parse(b, text.String())
	for _, c := range []struct {
		name   string
		set    *rules.Set
		domain string
		d      *ratelimit.RateLimitDescriptor
	}{
		{"value", s, "shop", entries("user", "ann")},
		{"default", s, "shop", entries("user", "somebody@example.com")},
		{"wildcard", s, "shop", entries("path", "/a/some/path")},
		{"nested with values in the metric", s, "shop", entries("path", "/c", "method", "PUT")},
		{"none", s, "shop", entries("path", "/nothing")},
		{"one of 5000 wildcards", many, "d", entries("k", "/4999/some/path")},
		{"hashed", s, "shop", entries("user", strings.Repeat("x", 300))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.set.Find(c.domain, c.d)
			}
		})
	}
}
