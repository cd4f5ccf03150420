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
	"github.com/hybridlimit/hybridlimit/internal/redistest"
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

func TestNewcomersWithoutMemoryAndARealRedis(t *testing.T) {
	srv := redistest.New(t)
	rdb := srv.Client(t, oneDial)
	srv.Kill()
	newcomers(t, hybridlimit.TokenBucket(5, time.Hour, 5), rdb)
}

func newcomers(t *testing.T, limit hybridlimit.Limit, rdb redis.UniversalClient) {
	const keys, cells, share = 1000, 1024, 5
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
	if err != nil || i.Outcome != hybrid.OutcomeDeny || !strings.Contains(i.Sentence, "keys that find no room share 5 units by the key's hash") {
		t.Errorf("%q, %v", i, err)
	}
	admitted(20_000, each("more made up "))
	if victim += admitted(20, one("victim")); victim != share {
		t.Errorf("a key that was there before got %d units, its share is %d", victim, share)
	}
	s := l.Stats()
	if got := s.Dropped - dropped; got > cells*share || got < cells*share*9/10 {
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

// TestOverflowAndMemoryAreOneShare checks that a key has one share in the overflow and in
// memory. Its used units stay used when it enters memory, and when it is driven out.
func TestOverflowAndMemoryAreOneShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		slow, fast := hybridlimit.TokenBucket(5, time.Hour, 5), hybridlimit.TokenBucket(100, time.Second, 10)
		l := newLimiter(t, b.Client(nil), fast, hybrid.Config{MaxKeys: 100, LimitFor: func(key string) hybridlimit.Limit {
			if strings.HasPrefix(key, "slow") {
				return slow
			}
			return fast
		}})
		time.Sleep(3 * time.Second)
		got := func(key string) (units int64) {
			for range 20 {
				units += ask(t, l, key, 1).Granted
			}
			return units
		}
		if n := got("slow, used up before"); n != 5 {
			t.Fatalf("%d units with Redis", n)
		}
		time.Sleep(time.Second)
		b.Kill()
		for range 200 {
			ask(t, l, "k", 1)
			time.Sleep(10 * time.Millisecond)
		}
		flood := func(round int) {
			for i := range 200 {
				ask(t, l, fmt.Sprint("made up ", round, " ", i), 1)
			}
		}
		flood(0)
		if n := got("slow newcomer"); n != 5 || l.Stats().Overflow == 0 {
			t.Errorf("%d units from the overflow, %+v", n, l.Stats())
		}
		time.Sleep(time.Second) // the memory has room again
		refused := l.Stats().Refused
		if n := got("slow newcomer"); n != 0 || l.Stats().Refused != refused {
			t.Errorf("%d units more in memory", n)
		}
		for round := 1; round < 5; round++ { // drives out the keys that owe nothing
			time.Sleep(time.Second)
			flood(round)
		}
		if n := got("slow, used up before"); n != 0 {
			t.Errorf("%d units for a key that was driven out", n)
		}
		balance(t, l.Stats())
		b.Restart()
		time.Sleep(3 * time.Second)
	})
}

// TestOverflowOfSeveralLimits checks that under several limits the allowance gives all or
// nothing.
func TestOverflowOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		b.Kill()
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		var ls []*hybrid.Limiter
		for i, burst := range []int64{2, 5} {
			ls = append(ls, add(t, h, still(burst), hybrid.Config{Name: fmt.Sprint("l", i), MaxKeys: 10}))
		}
		for range 100 {
			ask(t, ls[0], "first", 1)
			time.Sleep(10 * time.Millisecond)
		}
		for _, l := range ls {
			for _, k := range keysOf("k", 10) {
				ask(t, l, k, 1)
			}
		}
		both := func() (units int64) {
			for range 10 {
				res := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: ls[0], Key: "new", N: 1}, hybridlimit.Ask{Limiter: ls[1], Key: "new", N: 1}))
				if res.Source != hybridlimit.SourceFallback {
					t.Errorf("%+v", res)
				}
				if res.Allowed {
					units++
				}
			}
			return units
		}
		if n := both(); n != 2 {
			t.Errorf("%d calls under both limits, want 2", n)
		}
		alone := int64(0)
		for range 10 {
			alone += ask(t, ls[1], "new", 1).Granted
		}
		if alone != 3 {
			t.Errorf("the larger limit has %d units left, want 3: a denied call takes nothing", alone)
		}
		for _, l := range ls {
			balance(t, l.Stats())
		}
		time.Sleep(2 * time.Second)
	})
}
