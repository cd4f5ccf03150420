package hybrid_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

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
		// Another key of the flood may have its share in the same cell, and have used a tenth of it.
		if n := got("slow newcomer"); n < 3 || n > 5 || l.Stats().Overflow == 0 {
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
