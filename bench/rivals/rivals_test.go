package rivals_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

func open(t *testing.T, r rivals.Rival, env rivals.Env) rivals.Limiter {
	t.Helper()
	env.Patience = time.Minute // so that late answers of Redis on a busy machine count
	if r.Where != rivals.InMemory {
		srv := redistest.New(t)
		env.Redis, env.Addr = srv.Client(t), srv.Addr()
	}
	l, err := r.Open(env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if w, ok := l.(rivals.Warmer); ok {
		if err := w.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// TestEveryRivalDecidesRight checks that a limit of five admits five of ten
// calls, for each key, from one caller and from many.
func TestEveryRivalDecidesRight(t *testing.T) {
	hour := testenv.OpenWindow(time.Now(), 1, time.Hour) // some rivals count in windows of the clock
	for _, r := range rivals.All {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			l := open(t, r, rivals.Env{Limit: hybridlimit.TokenBucket(5, hour, 5), Keys: 100, Name: "x"})
			most := 5
			if r.Name == "go-zero" {
				most = 8 // its slowest rate is a unit a second, and the machine may be slow
			}
			right := func(what string, got int) {
				t.Helper()
				if got < 5 || got > most {
					t.Errorf("%s: %d of 10 admitted, want 5", what, got)
				}
			}
			got, err := l.Decide(t.Context(), many("a", 10))
			if err != nil {
				t.Fatal(err)
			}
			right("one caller", got)
			if r.Single {
				return
			}
			var sum atomic.Int64
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					n, err := l.Decide(t.Context(), []string{"b"})
					if err != nil {
						t.Error(err)
					}
					sum.Add(int64(n))
				})
			}
			wg.Wait()
			right("ten callers", int(sum.Load()))
			if got, err := l.Decide(t.Context(), []string{"c", "d", "e", "c", "d", "e"}); err != nil || got != 6 {
				t.Errorf("three new keys, twice each: %d admitted, %v", got, err)
			}
		})
	}
}

func many(key string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = key
	}
	return keys
}

// TestNobodyDeniesFarBelowTheLimit checks that no rival denies a call far below
// its limit, and that hybrid makes nearly all decisions without Redis.
func TestNobodyDeniesFarBelowTheLimit(t *testing.T) {
	for _, r := range rivals.All {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			l := open(t, r, rivals.Env{Limit: hybridlimit.PerSecond(1_000_000_000), Keys: 100})
			const calls = 500
			if got, err := l.Decide(t.Context(), many("a", calls)); err != nil || got != calls {
				t.Errorf("%d of %d admitted, %v", got, calls, err)
			}
			if s, ok := l.(rivals.Sourced); ok {
				by := s.Sources()
				if n := by[hybridlimit.SourceLease] + by[hybridlimit.SourceCredit]; n < calls*99/100 {
					t.Errorf("%d of %d by lease or credit: %v", n, calls, by)
				}
			}
		})
	}
}

func TestNamesAreFitForBenchmarks(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rivals.All {
		if seen[r.Name] || strings.ContainsAny(r.Name, " /=") || r.What == "" {
			t.Errorf("%q: %q", r.Name, r.What)
		}
		seen[r.Name] = true
		got, err := rivals.Find(r.Name)
		if err != nil || got.Name != r.Name {
			t.Errorf("Find(%q) is %q, %v", r.Name, got.Name, err)
		}
	}
	if _, err := rivals.Find("nobody"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", "nobody")) {
		t.Error(err)
	}
}
