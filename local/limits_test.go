package local

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

func askLimit(tb fataler, l *Limiter, now time.Time, key string, n int64, limit hybridlimit.Limit) hybridlimit.Result {
	tb.Helper()
	res, err := l.allowLimitAt(now, key, n, limit, "")
	if err != nil {
		tb.Fatalf("allowLimitAt(%q, %d, %v): %v", key, n, limit, err)
	}
	return res
}

// resized returns l with n units per period.
func resized(l hybridlimit.Limit, n int64, per time.Duration) hybridlimit.Limit {
	l.Rate, l.Period, l.Burst = n, per, 0
	return l
}

func TestAllowLimitIsAllowUnderThatLimit(t *testing.T) {
	eachAlgorithm(t, 1, time.Hour, func(t *testing.T, base hybridlimit.Limit) {
		rapid.Check(t, func(t *rapid.T) {
			limit := small(t, base.Algorithm)
			own, now := at(t, limit, Config{})
			with, _ := at(t, base, Config{})
			for range 20 {
				now = now.Add(anyPause(t, limit))
				n := rapid.Int64Range(1, limit.BurstSize()+1).Draw(t, "n")
				if a, b := ask(t, own, now, "k", n), askLimit(t, with, now, "k", n, limit); a != b {
					t.Fatalf("AllowN under %v: %+v, AllowLimit: %+v", limit, a, b)
				}
			}
		})
	})
}

func TestAllowLimitRefusesBadLimits(t *testing.T) {
	ctx := context.Background()
	eachAlgorithm(t, 10, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		l, _ := at(t, limit, Config{})
		other := hybridlimit.FixedWindow(10, time.Second)
		if limit == other {
			other = hybridlimit.PerSecond(10)
		}
		for want, bad := range map[string]hybridlimit.Limit{
			"Limit.Rate (-1)":   resized(limit, -1, time.Second),
			"Limit.Period (0s)": resized(limit, 1, 0),
			fmt.Sprintf("Limit.Algorithm (%v) must be the limiter's (%v)", other.Algorithm, limit.Algorithm): other,
		} {
			_, err := l.AllowLimit(ctx, "k", 1, bad)
			for _, err := range []error{err, l.SetLimit(bad)} {
				var invalid *hybridlimit.InvalidError
				if !errors.As(err, &invalid) || invalid.Package != "local" || !strings.Contains(err.Error(), want) {
					t.Errorf("%v: %v, want %s", bad, err, want)
				}
			}
		}
		if l.Len() != 0 {
			t.Error("a bad limit made a key")
		}
		if res, err := l.Allow(ctx, "k"); err != nil || res.Limit != 10 {
			t.Errorf("a bad limit was set: %+v, %v", res, err)
		}
	})
}

// TestLimitsInTurnRefillNothing changes the limit of a key many times in one instant. It
// checks that no more units are admitted than under the largest limit.
func TestLimitsInTurnRefillNothing(t *testing.T) {
	eachAlgorithm(t, 1, time.Second, func(t *testing.T, base hybridlimit.Limit) {
		rapid.Check(t, func(t *rapid.T) {
			l, now := at(t, resized(base, 7, time.Second), Config{})
			now = now.Add(time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "when")))
			most, got := int64(0), int64(0)
			for range rapid.IntRange(1, 40).Draw(t, "calls") {
				limit := resized(base, rapid.Int64Range(1, 20).Draw(t, "rate"),
					rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Hour}).Draw(t, "per"))
				n := rapid.Int64Range(1, limit.Rate).Draw(t, "n")
				switch rapid.SampledFrom([]string{"with", "set", "plain"}).Draw(t, "verb") {
				case "with":
					most = max(most, limit.Rate)
					got += askLimit(t, l, now, "k", n, limit).Granted
				case "set":
					if err := l.setLimitAt(now, limit); err != nil {
						t.Fatal(err)
					}
				case "plain":
					res := ask(t, l, now, "k", 1)
					most, got = max(most, res.Limit), got+res.Granted
				}
				if got > most {
					t.Fatalf("%d admitted at once, want at most %d, the largest limit", got, most)
				}
			}
		})
	})
}

// TestSetLimit checks keys of 10 a second under a new limit: one that has used 6, one
// that has used all 10, and an unused one.
func TestSetLimit(t *testing.T) {
	for _, tc := range []struct {
		algorithm          hybridlimit.Algorithm
		n                  int64
		per                time.Duration
		some, none         int64         // units that remain at once
		retry              time.Duration // of the second key, for one unit
		someLater, noLater int64         // units that remain half a second later
	}{
		{hybridlimit.AlgTokenBucket, 20, time.Second, 4, 0, 50 * ms, 14, 10},
		{hybridlimit.AlgTokenBucket, 2, time.Second, 2, 0, 500 * ms, 2, 1},
		{hybridlimit.AlgTokenBucket, 10, time.Minute, 4, 0, 6 * time.Second, 4, 0},
		{hybridlimit.AlgLeakyBucket, 20, time.Second, 4, 0, 50 * ms, 14, 10},
		{hybridlimit.AlgLeakyQueue, 20, time.Second, 14, 10, 0, 20, 20},
		{hybridlimit.AlgLeakyQueue, 2, time.Second, 0, 0, 4500 * ms, 0, 0},
		{hybridlimit.AlgFixedWindow, 20, time.Second, 14, 10, 0, 14, 10},
		{hybridlimit.AlgFixedWindow, 2, time.Second, 0, 0, time.Second, 0, 0},
		{hybridlimit.AlgFixedWindow, 10, time.Minute, 4, 0, time.Second, 4, 0},        // the window keeps its end
		{hybridlimit.AlgFixedWindow, 10, 100 * ms, 4, 0, time.Second, 4, 0},           // the window keeps its end
		{hybridlimit.AlgSlidingWindow, 20, time.Second, 14, 10, 0, 14, 10},            // all units count in the current window
		{hybridlimit.AlgSlidingWindow, 10, 100 * ms, 4, 0, 110 * ms, 10, 10},          // the new period counts at once
		{hybridlimit.AlgSlidingWindow, 10, time.Minute, 4, 0, 66 * time.Second, 4, 0}, // the new period counts at once
		{hybridlimit.AlgSlidingLog, 20, time.Second, 14, 10, 0, 14, 10},
		{hybridlimit.AlgSlidingLog, 2, time.Second, 0, 0, time.Second, 0, 0},
		{hybridlimit.AlgSlidingLog, 10, time.Minute, 4, 0, time.Second, 4, 0}, // the entries keep the times at which they leave
		{hybridlimit.AlgSlidingLog, 10, 100 * ms, 4, 0, time.Second, 4, 0},
	} {
		limit := hybridlimit.Limit{Algorithm: tc.algorithm, Rate: 10, Period: time.Second}
		l, now := at(t, limit, Config{})
		ask(t, l, now, "some", 6)
		ask(t, l, now, "none", 10)
		next := resized(limit, tc.n, tc.per)
		if err := l.setLimitAt(now, next); err != nil {
			t.Fatal(err)
		}
		look := func(key string, later time.Duration) hybridlimit.Result {
			res, err := l.peekAt(now.Add(later), key)
			if err != nil || res.Limit != tc.n {
				t.Errorf("%v: %s: %+v, %v", next, key, res, err)
			}
			return res
		}
		some, none := look("some", 0), look("none", 0)
		if some.Remaining != tc.some || none.Remaining != tc.none || none.RetryAfter != tc.retry {
			t.Errorf("%v: 4 and 0 units were left, now %d and %d are, and the next unit is in %v; want %d, %d, %v",
				next, some.Remaining, none.Remaining, none.RetryAfter, tc.some, tc.none, tc.retry)
		}
		if res := look("nobody", 0); res.Remaining != tc.n || res.ResetAfter != 0 {
			t.Errorf("%v: a new key: %+v", next, res)
		}
		some, none = look("some", 500*ms), look("none", 500*ms)
		if some.Remaining != tc.someLater || none.Remaining != tc.noLater {
			t.Errorf("%v: half a second later %d and %d remain, want %d and %d", next, some.Remaining, none.Remaining, tc.someLater, tc.noLater)
		}
	}
}

// TestSetLimitTakesEffectAtOnce checks that units refill at the old rate until SetLimit
// and at the new rate after it, also for a key without calls.
func TestSetLimitTakesEffectAtOnce(t *testing.T) {
	l, now := at(t, hybridlimit.TokenBucket(10, time.Second, 10), Config{})
	ask(t, l, now, "k", 10)
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, time.Second, 10), hybridlimit.TokenBucket(2, time.Second, 10),
	} {
		now = now.Add(200 * ms) // 2 units, then 0.2
		if err := l.setLimitAt(now, limit); err != nil {
			t.Fatal(err)
		}
	}
	if res := mustPeek(t, l, now.Add(time.Second)); res.Remaining != 4 { // and then 2 units
		t.Errorf("%+v, want 4 remaining", res)
	}
}

func TestLimitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		base := hybridlimit.PerHour(2)
		asked := map[string]int{}
		var l *Limiter
		l = must(t, base, Config{MaxKeys: 3, LimitFor: func(key string) hybridlimit.Limit {
			asked[key]++
			l.Len() // takes the locks: none is held
			switch key {
			case "gold":
				return hybridlimit.PerHour(5)
			case "none":
				return hybridlimit.Limit{}
			case "window":
				return hybridlimit.FixedWindow(1, time.Hour)
			}
			return base
		}})
		for key, want := range map[string]int64{"gold": 5, "iron": 2} {
			if res, err := l.Peek(ctx, key); err != nil || res.Limit != want || res.Remaining != want {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
			for n := want; n >= 0; n-- {
				if res, err := l.Allow(ctx, key); err != nil || res.Allowed != (n > 0) || res.Limit != want {
					t.Errorf("%s: %+v, %v", key, res, err)
				}
			}
			if res, err := l.AllowN(ctx, key, want+1); err != nil || res.RetryAfter != hybridlimit.Never {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
			if asked[key] != 2 { // by Peek, and when it came into memory
				t.Errorf("%s: asked %d times", key, asked[key])
			}
		}
		for _, key := range []string{"none", "window"} {
			_, err := l.Allow(ctx, key)
			if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), `Config.LimitFor("`+key+`")`) {
				t.Errorf("%s: %v", key, err)
			}
		}
		// SetLimit does not change keys with a limit of their own. A limit that
		// comes with a call takes precedence, for that call only.
		if err := l.SetLimit(hybridlimit.PerHour(4)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		for key, want := range map[string]int64{"gold": 5, "iron": 4} {
			if res, err := l.AllowLimit(ctx, key, 3, hybridlimit.PerHour(3)); err != nil || res.Limit != 3 {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
			if res, err := l.Allow(ctx, key); err != nil || res.Limit != want || res.Allowed {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
		}
	})
}

// TestDebtOutlivesIdleness checks that an idle key is dropped only when it is full. Until
// then it does not keep other keys from being dropped.
func TestDebtOutlivesIdleness(t *testing.T) {
	long := func(l hybridlimit.Limit) hybridlimit.Limit { l.Rate = 1; return l }
	eachAlgorithm(t, 4, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		l, now := at(t, limit, Config{})
		idle := l.shards[0].base.idle
		if _, err := l.chargeAt(now, "debtor", 8, ""); err != nil {
			t.Fatal(err)
		}
		slow := long(limit)
		slow.Period, slow.Burst = time.Hour, 0
		askLimit(t, l, now, "slow", 1, slow)
		for i := range 20 {
			ask(t, l, now, fmt.Sprint("k", i), 1)
		}
		owed := mustReset(t, l, now, "debtor")
		now = now.Add(idle + 1)
		for range 30 {
			ask(t, l, now, "busy", 1)
		}
		kept := 2 // busy and slow
		if owed > idle+1 {
			kept++
		}
		if l.Len() != kept || l.Evicted() != 0 {
			t.Errorf("%d keys are held, want %d; %d evicted", l.Len(), kept, l.Evicted())
		}
		if res := askLimit(t, l, now, "slow", 1, slow); res.Allowed {
			t.Errorf("the slow key was dropped before it was full: %+v", res)
		}
		now = now.Add(3 * time.Hour)
		for range 30 {
			ask(t, l, now, "busy", 1)
			now = now.Add(idle + 1)
		}
		if l.Len() != 1 {
			t.Errorf("%d keys are held in the end", l.Len())
		}
	})
}

func mustReset(t *testing.T, l *Limiter, now time.Time, key string) time.Duration {
	t.Helper()
	res, err := l.peekAt(now, key)
	if err != nil {
		t.Fatal(err)
	}
	return res.ResetAfter
}

func TestPlansAreRemembered(t *testing.T) {
	ctx := context.Background()
	l := must(t, hybridlimit.PerHour(10), Config{})
	free, paid := hybridlimit.PerHour(5), hybridlimit.PerHour(50)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = l.AllowLimit(ctx, "a", 1, free)
		_, _ = l.AllowLimit(ctx, "b", 1, paid)
		_, _ = l.AllowLimit(ctx, "a", 1, paid)
	}); n != 0 {
		t.Errorf("%v allocations for limits that were seen before", n)
	}
	for i := range int64(10_000) { // the cache has a fixed size
		if res, err := l.AllowLimit(ctx, "c", 1, hybridlimit.PerHour(i+1)); err != nil || res.Limit != i+1 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

// TestChangesInDetail has cases that no other test covered: mutations of the code had
// survived there.
func TestChangesInDetail(t *testing.T) {
	ctx := context.Background()
	t.Run("a sliding estimate counts the window before", func(t *testing.T) {
		l, now := at(t, hybridlimit.SlidingWindow(10, time.Second), Config{})
		ask(t, l, now, "k", 8)
		now = now.Add(1500 * ms) // 4 of them count
		if err := l.setLimitAt(now, hybridlimit.SlidingWindow(10, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if res := mustPeek(t, l, now); res.Remaining != 6 {
			t.Errorf("%+v", res)
		}
	})
	t.Run("a log stays in order when its period becomes shorter", func(t *testing.T) {
		long, short := hybridlimit.SlidingLog(10, time.Hour), hybridlimit.SlidingLog(10, time.Second)
		l, now := at(t, long, Config{})
		ask(t, l, now, "k", 4)
		askLimit(t, l, now, "k", 3, short)
		if res := mustPeek(t, l, now.Add(time.Second)); res.Remaining != 6 || res.ResetAfter != time.Hour-time.Second {
			t.Errorf("a second later: %+v", res)
		}
	})
	t.Run("a bucket whose limit has changed takes nothing back", func(t *testing.T) {
		slow := hybridlimit.TokenBucket(1, time.Hour, 10)
		l, now := at(t, slow, Config{})
		h := &hand{now}
		r := reserve(t, l, h, 10)
		askLimit(t, l, h.now, "k", 1, hybridlimit.TokenBucket(10, time.Second, 10))
		h.now = now.Add(time.Second) // full again, under the other limit
		ask(t, l, h.now, "k", 10)
		if err := r.Cancel(ctx); err != nil || mustPeek(t, l, h.now).Remaining != 0 {
			t.Errorf("%v, %+v", err, mustPeek(t, l, h.now))
		}
	})
	t.Run("a debtor does not keep the sweep busy", func(t *testing.T) {
		l, now := at(t, hybridlimit.PerSecond(1), Config{})
		askLimit(t, l, now, "debtor", 1, hybridlimit.PerHour(1))
		now = now.Add(time.Second + 1)
		ask(t, l, now, "busy", 1)
		if s := &l.shards[0]; s.sweepAt < s.now+time.Second {
			t.Errorf("the next sweep is at %v, and it is %v", s.sweepAt, s.now)
		}
	})
}
