package local

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

// TestAgainstIdealBucket drives a few keys through random times and costs and compares
// every answer with the exact bucket of its key. It also tests the theorem of the package
// comment, in any interval: an exact bucket without the admitted units never lacks more
// than the refill of the blur.
//
// Idle keys are dropped, so it also shows that dropping loses nothing.
func TestAgainstIdealBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := anyLimit(t)
		l, now := at(t, limit, Config{})
		oracle := map[string]*ideal{}
		lasts := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			pause := anyPause(t, limit)
			if lasts += pause; lasts > 100*365*24*time.Hour {
				break // the times must fit a Duration
			}
			now = now.Add(pause)
			key := fmt.Sprint("k", rapid.IntRange(0, 2).Draw(t, "key"))
			if oracle[key] == nil {
				oracle[key] = newIdeal(limit, now)
			}
			n := logInt(t, limit.BurstSize(), "n")
			judge(t, l, oracle[key], now, key, n)
		}
	})
}

func judge(t *rapid.T, l *Limiter, b *ideal, now time.Time, key string, n int64) {
	b.advance(now)
	burst := b.limit.BurstSize()
	before, err := l.peekAt(now, key)
	if err != nil {
		t.Fatal(err)
	}
	res := ask(t, l, now, key, n)
	blur := b.blur()
	if res.Allowed {
		if !b.holds(n, blur) {
			t.Fatalf("%d admitted at a level of %v, the cost is %v: %+v", n, b.level, b.units(n), res)
		}
		b.take(n)
		if !b.holds(0, blur) {
			t.Fatalf("more admitted than burst + rate·t: level %v", b.level)
		}
	} else {
		if b.holds(n, -blur) {
			t.Fatalf("%d denied at a level of %v, the cost is %v: %+v", n, b.level, b.units(n), res)
		}
		if !b.holds(n, res.RetryAfter+blur) || b.holds(n, res.RetryAfter-blur) {
			t.Fatalf("RetryAfter %v is off by more than %v", res.RetryAfter, blur)
		}
	}
	if !b.holds(burst, res.ResetAfter+blur) || res.ResetAfter > blur && b.holds(burst, res.ResetAfter-blur) {
		t.Fatalf("ResetAfter %v is off by more than %v", res.ResetAfter, blur)
	}
	if res.ResetAfter < res.RetryAfter {
		t.Fatalf("full after %v, but %d only after %v", res.ResetAfter, n, res.RetryAfter)
	}
	if !b.holds(res.Remaining, blur) || res.Remaining < burst && b.holds(res.Remaining+1, -blur) {
		t.Fatalf("Remaining %d, level %v of %v each", res.Remaining, b.level, b.units(1))
	}
	// Remaining of the Peek before gives the largest cost that AllowN admits.
	if res.Allowed != (n <= before.Remaining) {
		t.Fatalf("Peek: %d units remain, but AllowN(%d) is %v", before.Remaining, n, res.Allowed)
	}
}

// TestRetryAfterIsExact checks that a denied call is admitted at its RetryAfter, and
// denied earlier than that by the blur or more.
func TestRetryAfterIsExact(t *testing.T) {
	check := func(t fataler, limit hybridlimit.Limit, first, n int64, pause time.Duration) {
		l, now := at(t, limit, Config{})
		if res := ask(t, l, now, "k", first); !res.Allowed {
			t.Fatalf("%d of a full bucket denied: %+v", first, res)
		}
		now = now.Add(pause)
		res := ask(t, l, now, "k", n)
		if res.Allowed {
			return
		}
		b := newIdeal(limit, now)
		b.admissions = 1
		if early := res.RetryAfter - b.blur(); early > 0 {
			if res := ask(t, l, now.Add(early), "k", n); res.Allowed {
				t.Fatalf("%v: AllowN(%d) was admitted %v early: %+v", limit, n, b.blur(), res)
			}
		}
		if again := ask(t, l, now.Add(res.RetryAfter), "k", n); !again.Allowed {
			t.Fatalf("%v: AllowN(%d) was denied after its RetryAfter of %v: %+v", limit, n, res.RetryAfter, again)
		}
	}
	const day = 24 * time.Hour
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, day, 1),
		hybridlimit.TokenBucket(1, day, 50_000), // 137 years
		hybridlimit.TokenBucket(7, 3*day, 1000),
		hybridlimit.PerHour(1),
		hybridlimit.PerMinute(7),
		hybridlimit.PerSecond(3),
		hybridlimit.PerSecond(10_000_000),
		hybridlimit.TokenBucket(10_000_000, time.Second, 1),
		hybridlimit.TokenBucket(3_000_000_000, time.Second, 10), // 3 in a nanosecond
	} {
		burst := limit.BurstSize()
		for _, n := range []int64{1, burst/2 + 1, burst} {
			for _, pause := range []time.Duration{0, 1, 333, 1_000_003, time.Hour} {
				check(t, limit, burst, n, pause)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := anyLimit(t)
		first := logInt(t, limit.BurstSize(), "first")
		n := logInt(t, limit.BurstSize(), "n")
		check(t, limit, first, n, anyPause(t, limit))
	})
}

// TestTwoNanosecondsAreTheResolution checks that ε of the package comment is 2 ns for
// limits that are full within a day: the second term is below 1 ns.
func TestTwoNanosecondsAreTheResolution(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, 24*time.Hour, 1),
		hybridlimit.PerHour(7),
		hybridlimit.PerSecond(3),
		hybridlimit.PerSecond(10_000_000),
	} {
		b := newIdeal(limit, time.Time{})
		if blur := b.blur(); blur != 3 { // 2 and a term below 1
			t.Errorf("%v: blur is %v", limit, blur)
		}
		l, now := at(t, limit, Config{})
		ask(t, l, now, "k", limit.BurstSize())
		for n := range min(limit.BurstSize(), 1000) {
			res := ask(t, l, now, "k", n+1)
			for _, early := range []time.Duration{2, time.Microsecond} {
				if early < res.RetryAfter && mustPeek(t, l, now.Add(res.RetryAfter-early)).Remaining > n {
					t.Errorf("%v: %d were there %v before RetryAfter (%v)", limit, n+1, early, res.RetryAfter)
				}
			}
			if mustPeek(t, l, now.Add(res.RetryAfter)).Remaining <= n {
				t.Errorf("%v: %d were not there after RetryAfter (%v)", limit, n+1, res.RetryAfter)
			}
			l.shards[0].now = 0 // Peek moved the clock
		}
	}
}

// TestDecideLooksAfterwards checks that decide returns the answer of a look after it.
func TestDecideLooksAfterwards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := anyLimit(t)
		e := newEntry(newPlan(limit, 0, time.Unix(0, 0)), nil)
		var now time.Duration
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			if now += anyPause(t, limit); now > 100*365*24*time.Hour {
				return
			}
			n := logInt(t, limit.BurstSize(), "n")
			_, ok, seen := e.decide(now, n, 0)
			if ok {
				n = 0
			}
			if later := e.look(now, n); seen != later {
				t.Fatalf("decide saw %+v, look %+v", seen, later)
			}
		}
	})
}
