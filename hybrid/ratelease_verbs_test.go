package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestRateLeaseOfOneProcess checks single calls: of the burst, above it, of several units, and of a key that is denied.
func TestRateLeaseOfOneProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newRateFleet(t, redistest.NewBubble(t), 1, hybridlimit.TokenBucket(10, time.Second, 20), hybrid.RateLeaseConfig{})
		l := f.all[0]
		if res := ask(t, l, "k", 20); !res.Allowed || res.Granted != 20 || res.Source != hybridlimit.SourceRedis || res.Limit != 20 || res.Policy != "hot" {
			t.Errorf("the whole burst: %+v", res)
		}
		if res := ask(t, l, "k", 1); res.Allowed || res.RetryAfter <= 0 || res.RetryAfter > time.Second || res.Remaining != 0 {
			t.Errorf("then: %+v", res)
		}
		if res := ask(t, l, "k", 21); res.Allowed || res.RetryAfter != hybridlimit.Never || res.Source != hybridlimit.SourceStatic {
			t.Errorf("above the burst: %+v", res)
		}
		for _, n := range []int64{0, -1} {
			if _, err := l.AllowN(t.Context(), "k", n); !errors.Is(err, hybridlimit.ErrCost) {
				t.Errorf("%d units: %v", n, err)
			}
		}
		if _, err := l.Allow(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
			t.Error(err)
		}
		var got int64
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			got += ask(t, l, "k", 2).Granted
		}
		if got < 95 || got > 101 {
			t.Errorf("%d units in ten seconds, want 100", got)
		}
		if res, err := l.Peek(t.Context(), "other"); err != nil || !res.Allowed || l.Len() != 1 {
			t.Errorf("Peek: %+v, %v, %d keys", res, err, l.Len())
		}
	})
}

// TestRateLeaseRetryAfter checks that a call that comes when RetryAfter says is admitted, while the key has no other
// calls.
func TestRateLeaseRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newRateFleet(t, redistest.NewBubble(t), 1, hybridlimit.TokenBucket(10, time.Second, 20), hybrid.RateLeaseConfig{})
		l := f.all[0]
		var waited time.Duration
		denied := 0
		for range 300 {
			res := ask(t, l, "k", 1)
			if !res.Allowed {
				denied++
				waited += res.RetryAfter
				time.Sleep(res.RetryAfter)
			}
		}
		if denied > 200 || waited > 32*time.Second {
			t.Errorf("%d denials, and %v of waiting for 300 calls", denied, waited)
		}
	})
}

// TestRateLeaseControls checks the limits, the switches and shadow.
func TestRateLeaseControls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own := map[string]hybridlimit.Limit{"free": hybridlimit.Unlimited(), "none": hybridlimit.Blocked(), "slow": hybridlimit.TokenBucket(1, time.Hour, 1), "bad": hybridlimit.FixedWindow(1, time.Second)}
		limit := hybridlimit.TokenBucket(100, time.Second, 100)
		var l *hybrid.RateLeaseLimiter
		f := newRateFleet(t, redistest.NewBubble(t), 1, limit, hybrid.RateLeaseConfig{LimitFor: func(key string) hybridlimit.Limit {
			if limit, ok := own[key]; ok {
				return limit
			}
			return l.Limit()
		}})
		l = f.all[0]
		for _, c := range []struct {
			key     string
			n       int64
			allowed bool
			source  hybridlimit.Source
		}{
			{"free", 1 << 40, true, hybridlimit.SourceStatic},
			{"none", 1, false, hybridlimit.SourceStatic},
			{"slow", 1, true, hybridlimit.SourceRedis},
			{"slow", 1, false, hybridlimit.SourceRateLease},
			{"k", 50, true, hybridlimit.SourceRedis},
		} {
			if res := ask(t, l, c.key, c.n); res.Allowed != c.allowed || res.Source != c.source {
				t.Errorf("%d of %s: %+v", c.n, c.key, res)
			}
		}
		if _, err := l.Allow(t.Context(), "bad"); !errors.Is(err, hybridlimit.ErrInvalid) || l.Stats().InvalidLimits != 1 {
			t.Errorf("a limit of another algorithm: %v", err)
		}
		if err := l.SetLimit(hybridlimit.TokenBucket(10, time.Second, 10)); err != nil {
			t.Fatal(err)
		}
		ask(t, l, "k", 10)
		time.Sleep(8 * time.Second)
		var got int64
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			got += ask(t, l, "k", 1).Granted
		}
		if got < 95 || got > 112 {
			t.Errorf("%d units in ten seconds of the new limit, want 100 to 110", got)
		}
		for _, bad := range []hybridlimit.Limit{hybridlimit.FixedWindow(1, time.Second), hybridlimit.TokenBucket(1, 365*24*time.Hour, 1), hybridlimit.TokenBucket(1, time.Second, 2e9)} {
			if err := l.SetLimit(bad); !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("SetLimit(%v): %v", bad, err)
			}
		}
		mode := hybrid.ModeDeferred
		if err := f.hubs[0].SetSettings(map[string]hybrid.Settings{"hot": {Mode: &mode}}); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("a mode by the settings: %v", err)
		}
		for s, want := range map[hybrid.Switch]bool{hybrid.SwitchAllowAll: true, hybrid.SwitchDenyAll: false} {
			if err := l.SetSwitch(s); err != nil {
				t.Fatal(err)
			}
			if res := ask(t, l, "k", 1); res.Allowed != want || res.Source != hybridlimit.SourceSwitch {
				t.Errorf("%v: %+v", s, res)
			}
		}
		l.SetSwitch(hybrid.SwitchShadow)
		if res := ask(t, l, "slow", 1); !res.Allowed || !res.Shadowed {
			t.Errorf("shadow: %+v", res)
		}
		l.SetSwitch(hybrid.SwitchLocalOnly)
		ops := l.Stats().Ops
		for range 100 {
			ask(t, l, "new", 1)
		}
		if s := l.Stats(); s.Ops != ops || s.Allowed[hybridlimit.SourceFallback] == 0 {
			t.Errorf("local_only: %+v", s)
		}
		l.ClearSwitch()
	})
}

// TestRateLeaseOfFleetKey checks a limit of the fleet for one key.
func TestRateLeaseOfFleetKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := hybridlimit.TokenBucket(100, time.Second, 100)
		f := newRateFleet(t, redistest.NewBubble(t), 2, limit, hybrid.RateLeaseConfig{})
		ask(t, f.all[0], "k", 1)
		ask(t, f.all[1], "k", 1)
		slow, ctx := hybridlimit.TokenBucket(10, time.Second, 20), t.Context()
		if err := f.hubs[0].SetFleetKeyLimit(ctx, "hot", "k", slow); err != nil {
			t.Fatal(err)
		}
		units := func(seconds int) (units [2]int64) {
			for range 100 * seconds {
				time.Sleep(10 * time.Millisecond)
				for i, l := range f.all {
					units[i] += ask(t, l, "k", 1).Granted
				}
			}
			return units
		}
		units(8)
		if got := units(10); got[0]+got[1] < 90 || got[0]+got[1] > 112 {
			t.Errorf("%v units in ten seconds of ten units a second", got)
		}
		for i, l := range f.all {
			if got := l.Policy("k").Limit; got != slow {
				t.Errorf("process %d: the limit is %v", i, got)
			}
			if got := l.Policy("other").Limit; got != limit {
				t.Errorf("process %d: the limit of another key is %v", i, got)
			}
		}
		for _, bad := range []hybridlimit.Limit{hybridlimit.FixedWindow(1, time.Second), hybridlimit.TokenBucket(1, time.Second, 2e9)} {
			if err := f.hubs[1].SetFleetKeyLimit(ctx, "hot", "k", bad); !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		if err := f.hubs[1].SetFleetKeyLimit(ctx, "hot", "k", hybridlimit.Limit{}); err != nil {
			t.Fatal(err)
		}
		units(10)
		if got := units(5); got[0]+got[1] < 480 || got[0]+got[1] > 620 {
			t.Errorf("%v units in five seconds of a hundred units a second", got)
		}
	})
}

// TestRateLeaseReset checks that Reset makes a key full again for all processes, also after Redis has lost the key.
func TestRateLeaseReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		f := newRateFleet(t, b, 2, hybridlimit.TokenBucket(1, time.Hour, 100), hybrid.RateLeaseConfig{})
		if res := ask(t, f.all[0], "k", 100); !res.Allowed {
			t.Fatal(res)
		}
		if res := ask(t, f.all[1], "k", 1); res.Allowed {
			t.Fatal(res)
		}
		if err := f.all[1].Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if res := ask(t, f.all[0], "k", 60); !res.Allowed {
			t.Errorf("after Reset: %+v", res)
		}
		b.Kill()
		if err := f.all[1].Reset(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("without Redis: %v", err)
		}
		b.Restart()
		time.Sleep(5 * time.Second)
		ask(t, f.all[1], "k", 1)
		time.Sleep(5 * time.Second)
		if res := ask(t, f.all[0], "k", 99); !res.Allowed {
			t.Errorf("after Redis is back: %+v", res)
		}
	})
}

// TestRateLeasesBadInput checks that all violations are in one error.
func TestRateLeasesBadInput(t *testing.T) {
	h := newHub(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), hybrid.HubConfig{})
	_, err := h.RateLeases(hybridlimit.SlidingWindow(10, time.Second), hybrid.RateLeaseConfig{
		Name: "a b", MaxWait: -1, MaxKeys: -1, MaxKeyBytes: -1, Fallback: 99, FallbackFloor: 11,
	})
	var bad *hybridlimit.InvalidError
	if !errors.As(err, &bad) || len(bad.Violations) != 7 {
		t.Errorf("%v", err)
	}
	for _, limit := range []hybridlimit.Limit{
		{},
		hybridlimit.Concurrent(3), hybridlimit.LeakyQueue(1, time.Second, 1), hybridlimit.SlidingLog(1, time.Second),
		hybridlimit.TokenBucket(2e9, time.Second, 1), hybridlimit.TokenBucket(1, time.Second, 2e9), hybridlimit.TokenBucket(1, 1000*time.Hour, 1),
	} {
		if _, err := h.RateLeases(limit, hybrid.RateLeaseConfig{Name: "x"}); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("%v: %v", limit, err)
		}
	}
	l, err := h.RateLeases(hybridlimit.LeakyBucket(10, time.Second, 10), hybrid.RateLeaseConfig{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Limiter(hybridlimit.PerSecond(1), hybrid.Config{Name: "x"}); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("a name twice: %v", err)
	}
	if got := h.RateLeaseLimiters(); len(got) != 1 || got[0] != l || len(h.Limiters()) != 0 || len(h.ConcurrencyLimiters()) != 0 {
		t.Errorf("the limiters are %v", got)
	}
	if p := l.Policy("k"); p.Name != "x" || p.Limit != l.Limit() {
		t.Errorf("%+v", p)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.RateLeases(hybridlimit.PerSecond(1), hybrid.RateLeaseConfig{Name: "y"}); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("a closed hub: %v", err)
	}
}

// TestRateLeaseContext checks that a call whose ctx ends while it waits returns that error and takes nothing, and that
// Close releases calls that wait.
func TestRateLeaseContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newRateFleet(t, redistest.NewBubble(t), 1, still(10), hybrid.RateLeaseConfig{MaxWait: 10 * time.Second})
		l := f.all[0]
		f.links[0].Latency(40*time.Millisecond, 40*time.Millisecond)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := l.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		time.Sleep(10 * time.Second)
		if res := ask(t, l, "k", 9); !res.Allowed { // the unit of the call that was gone is lost
			t.Errorf("after it: %+v", res)
		}
		done := make(chan error)
		go func() {
			_, err := l.Allow(context.Background(), "other")
			done <- err
		}()
		time.Sleep(5 * time.Millisecond)
		l.Close()
		if err := <-done; !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("a call that waits: %v", err)
		}
		synctest.Wait()
	})
}

// TestRateLeaseKeys checks that MaxKeys bounds memory, and that the units of many keys are apart.
func TestRateLeaseKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newRateFleet(t, redistest.NewBubble(t), 1, hybridlimit.TokenBucket(1, time.Minute, 3), hybrid.RateLeaseConfig{MaxKeys: 50})
		l := f.all[0]
		for i := range 200 {
			for range 4 {
				ask(t, l, fmt.Sprint("k", i), 1)
			}
		}
		s := l.Stats()
		if s.Keys != 50 || s.Evicted != 150 || s.Admitted != 600 {
			t.Errorf("%+v", s)
		}
		if res := ask(t, l, "k0", 1); res.Allowed {
			t.Errorf("an evicted key has its units again: %+v", res)
		}
	})
}

// TestRateLeaseInspect checks the sentences.
func TestRateLeaseInspect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		f := newRateFleet(t, b, 1, hybridlimit.TokenBucket(10, time.Second, 10), hybrid.RateLeaseConfig{})
		l := f.all[0]
		look := func(want hybrid.Outcome, because string) {
			t.Helper()
			i, err := l.Inspect(t.Context(), "k")
			if text := fmt.Sprintf("a call for 1 unit of %s: %s, because %s", i.Digest, want, because); err != nil || i.Outcome != want || i.String() != text {
				t.Errorf("%q, %v, want %q", i, err, text)
			}
		}
		look(hybrid.OutcomeAsk, "this process has no lease of the key")
		ask(t, l, "k", 10)
		look(hybrid.OutcomeDeny, "this process has 0.0 units in hand, and a leased rate of 10 a second; Redis has 0.0 units left")
		time.Sleep(time.Second)
		if i, _ := l.Inspect(t.Context(), "k"); i.Outcome != hybrid.OutcomeAllow || i.Rate != 10 || !i.Known || i.Held < 1 || i.Fleet != 1 {
			t.Errorf("%+v", i)
		}
		l.SetSwitch(hybrid.SwitchDenyAll)
		look(hybrid.OutcomeDeny, "the switch of this process is deny_all")
		l.ClearSwitch()
		b.Kill()
		time.Sleep(10 * time.Second)
		look(hybrid.OutcomeAllow, "Redis does not answer, and the fallback has 10.0 units left")
	})
}
