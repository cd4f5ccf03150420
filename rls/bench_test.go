package rls

import (
	"context"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const benchRules = `
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: few
    rate_limit: {unit: hour, requests_per_unit: 1}
`

// BenchmarkShouldRateLimit measures a request without the network, on a key that is in use.
func BenchmarkShouldRateLimit(b *testing.B) {
	addr := redistest.New(b).Addr()
	for _, c := range []struct {
		name string
		o    Options
		keys []string
	}{
		{"one", Options{}, []string{"user"}},
		{"one without headers", Options{NoDraftHeaders: true}, []string{"user"}},
		{"two", Options{}, []string{"user", "path"}},
		{"two strict", Options{StrictCompat: true}, []string{"user", "path"}},
		{"denied", Options{}, []string{"few"}},
		{"no rule", Options{}, []string{"none"}},
		{"metadata", Options{Metadata: true}, []string{"user"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newServiceAt(b, addr, benchRules, c.o)
			req := request("bench")
			for _, key := range c.keys {
				req.Descriptors = append(req.Descriptors, desc(key, "alice"))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.ShouldRateLimit(context.Background(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
