package local

import (
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// must makes a limiter that is closed when the test ends.
func must(tb testing.TB, limit hybridlimit.Limit, cfg Config) *Limiter {
	tb.Helper()
	l, err := New(limit, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}
