//go:build !race

// One goroutine calls, thousands of keys.

package hybrid_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const lineOverflow = "WARN hybridlimit: memory is full of keys that owe"

// TestNewcomersWithoutMemory takes Redis away and fills the memory with made-up keys that
// owe for an hour. New keys are then admitted from the allowance. No key gets more than
// its share, and all new keys together get no more than the keys in memory.
func TestNewcomersWithoutMemory(t *testing.T) {
	t.Parallel()
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(5, time.Hour, 5), hybridlimit.FixedWindow(5, time.Hour), hybridlimit.SlidingWindow(5, time.Hour), hybridlimit.LeakyQueue(5, time.Hour, 5),
	} {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				b.Kill()
				newcomers(t, limit, b.Client(nil))
				time.Sleep(2 * time.Second) // go-redis notices a closed client later
			})
		})
	}
}

func newcomers(t *testing.T, limit hybridlimit.Limit, rdb redis.UniversalClient) {
	const keys, cells, share = 1000, 4096, 5
	log := newCapture()
	l := newLimiter(t, rdb, limit, hybrid.Config{MaxKeys: keys, Hub: hybrid.HubConfig{Logger: slog.New(log)}})
	redistest.Eventually(t, 30*time.Second, "the breaker is open", func() bool {
		ask(t, l, "first", 1)
		return l.Stats().Breaker == breaker.Open
	})
	admitted := func(n int, key func(i int) string) (units int64) {
		for i := range n {
			res := ask(t, l, key(i), 1)
			if res.Source != hybridlimit.SourceFallback || !res.Allowed && res.RetryAfter <= 0 {
				t.Fatalf("call %d: %+v", i, res)
			}
			units += res.Granted
		}
		return units
	}
	one := func(key string) func(int) string { return func(int) string { return key } }
	each := func(prefix string) func(int) string { return func(i int) string { return fmt.Sprint(prefix, i) } }
	victim := admitted(20, one("victim"))
	admitted(keys, each("made up "))
	if s := l.Stats(); s.Keys != keys || s.Evicted > 0 {
		t.Fatalf("%d keys in memory, %d evicted", s.Keys, s.Evicted)
	}
	dropped := l.Stats().Dropped
	if got := admitted(1000, each("honest ")); got < 950 {
		t.Errorf("%d of 1000 honest newcomers were admitted", got)
	}
	// A key gets at most its share, from the overflow as from memory.
	if got := admitted(20, one("honest 3")) + 1; got > share {
		t.Errorf("one newcomer got %d units, its share is %d", got, share)
	}
	i, err := l.Inspect(t.Context(), "honest 3")
	if err != nil || i.Outcome != hybrid.OutcomeDeny || !strings.Contains(i.Sentence, "and of its share of 5 units 0 are left") {
		t.Errorf("%q, %v", i, err)
	}
	admitted(20_000, each("more made up "))
	if victim += admitted(20, one("victim")); victim != share {
		t.Errorf("a key that was there before got %d units, its share is %d", victim, share)
	}
	s := l.Stats()
	if got := s.Dropped - dropped; got > cells*share || got < cells*share*7/10 {
		t.Errorf("the overflow admitted %d units, it has %d", got, cells*share)
	}
	if s.Overflow < 21_000 || s.Keys != keys {
		t.Errorf("%d decisions by the overflow, %d keys", s.Overflow, s.Keys)
	}
	balance(t, s)
	lines := 0
	for _, line := range log.all() {
		if strings.HasPrefix(line, lineOverflow) {
			lines++
		}
	}
	if lines == 0 || lines > 3 {
		t.Errorf("%d lines about the overflow: %q", lines, log.all())
	}
}
