package rules_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

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

// deep returns rules with 32 levels, and a descriptor of n entries of a megabyte each.
func deep(t *testing.T) (s *rules.Set, of func(n int) *ratelimit.RateLimitDescriptor) {
	t.Helper()
	level := "[{key: k, value_to_metric: true, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: "
	s = parse(t, "domain: d\ndescriptors: "+strings.Repeat(level, 32)+strings.Repeat("}]", 32))
	big := strings.Repeat("x", 1<<20)
	return s, func(n int) *ratelimit.RateLimitDescriptor {
		var kv []string
		for range n {
			kv = append(kv, "k", big)
		}
		return entries(kv...)
	}
}

// The bytes that Find copies grow with the bytes of a descriptor, and not with their square: 32 entries of 1 MB take
// about as many as eight times four of them. The search measures the time too.
func TestFindCopiesLinearly(t *testing.T) {
	s, of := deep(t)
	if m, known := s.Find("d", of(64)); !known || m.Rule != nil {
		t.Errorf("%v for more entries than levels", m.Rule)
	}
	if m, _ := s.Find("d", of(32)); m.Rule == nil || len(m.Key) > 200 {
		t.Error("no rule for as many entries as levels")
	}
	copied := func(d *ratelimit.RateLimitDescriptor, times int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			s.Find("d", d)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	// A copy of all entries so far at each entry would make this 8.
	one, eight := copied(of(32), 1), copied(of(4), 8)
	if eight == 0 || one > 3*eight {
		t.Errorf("32 entries take %d bytes, eight times 4 entries %d", one, eight)
	}
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
