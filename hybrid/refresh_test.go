package hybrid_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// table is a LimitFor whose answers change.
type table struct {
	mu     sync.Mutex
	limits map[string]hybridlimit.Limit
	other  hybridlimit.Limit // of all other keys
	asked  map[string][]time.Time
}

func newTable(other hybridlimit.Limit) *table {
	return &table{limits: map[string]hybridlimit.Limit{}, other: other, asked: map[string][]time.Time{}}
}

func (p *table) limitFor(key string) hybridlimit.Limit {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[key] = append(p.asked[key], time.Now())
	if l, ok := p.limits[key]; ok {
		return l
	}
	return p.other
}

func (p *table) set(key string, l hybridlimit.Limit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits[key] = l
}

// questions returns the times at which LimitFor was asked about a key.
func (p *table) questions(key string) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.asked[key]...)
}

// inMemory are the modes that keep a key's limit in memory.
var inMemory = []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred}

func invalidate(t *testing.T, l *hybrid.Limiter, key string) {
	t.Helper()
	if err := l.Invalidate(key); err != nil {
		t.Errorf("Invalidate(%q): %v", key, err)
	}
}

// TestLimitForIsAskedAgain checks that LimitFor is asked again about a key in use, after half to the whole of LimitRefresh, and
// that no other call of the fast or the slow path asks. In earlier versions an upgrade arrived with an eviction or a restart.
func TestLimitForIsAskedAgain(t *testing.T) {
	inModes(t, inMemory, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		for _, every := range []time.Duration{0, time.Second} {
			limits := newTable(hybridlimit.PerSecond(1000))
			l := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(500), hybrid.Config{
				Name: fmt.Sprint("every", int64(every)), Mode: mode, LimitFor: limits.limitFor, LimitRefresh: every, MaxWait: time.Second,
			})
			if every == 0 {
				every = time.Minute
			}
			gap := every / 100
			for range 4*every/gap + 1 {
				ask(t, l, "k", 1)
				time.Sleep(gap)
			}
			asked := limits.questions("k")
			if len(asked) < 5 || len(asked) > 9 {
				t.Errorf("%v: LimitFor was asked %d times in four times LimitRefresh, want 5 to 9", every, len(asked))
			}
			for i := range asked[1:] {
				if after := asked[i+1].Sub(asked[i]); after < every/2-5*time.Millisecond || after > every+10*time.Millisecond+gap {
					t.Errorf("%v: asked again after %v", every, after)
				}
			}
			limits.set("k", hybridlimit.PerSecond(2000))
			changed := time.Now()
			for ask(t, l, "k", 1).Limit != 2000 {
				if time.Since(changed) > every+10*time.Millisecond+gap {
					t.Fatalf("%v: the old limit decides %v after the change", every, time.Since(changed))
				}
				time.Sleep(gap)
			}
			// After any time without a call, the next one asks.
			for _, idle := range []time.Duration{every, 3 * every, 69 * time.Second, 19 * time.Minute} {
				time.Sleep(idle)
				before := len(limits.questions("k"))
				ask(t, l, "k", 1)
				if len(limits.questions("k")) != before+1 {
					t.Errorf("%v: no question after %v without a call", every, idle)
				}
			}
		}
	})
}

// TestQuestionsAreSpread checks that keys that came into memory at one moment do not ask in one moment.
func TestQuestionsAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := newTable(hybridlimit.PerSecond(1000))
		l := newLimiter(t, redistest.NewBubble(t).Client(nil), hybridlimit.PerSecond(500), hybrid.Config{LimitFor: limits.limitFor, MaxWait: -1})
		const keys = 300
		start := time.Now()
		for second := range 65 {
			if second < 3 || second > 28 { // a key may ask from second 30 on
				for k := range keys {
					ask(t, l, fmt.Sprint("k", k), 1)
				}
			}
			time.Sleep(time.Second)
		}
		perSecond := map[int64]int{}
		for k := range keys {
			for _, at := range limits.questions(fmt.Sprint("k", k))[1:2] {
				perSecond[int64(at.Sub(start)/time.Second)]++
			}
		}
		for s, n := range perSecond {
			if s < 29 || s > 61 || n > 3*keys/30 {
				t.Errorf("%d of %d keys ask in second %d", n, keys, s)
			}
		}
	})
}

// TestInvalidate checks that the next call after Invalidate has the new limit, and only for its key.
func TestInvalidate(t *testing.T) {
	inModes(t, inMemory, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		limits := newTable(still(100))
		l := newLimiter(t, b.Client(nil), still(500), hybrid.Config{
			Mode: mode, LimitFor: limits.limitFor, LimitRefresh: hybridlimit.Never, MaxWait: time.Second,
		})
		time.Sleep(2300 * time.Millisecond)
		handle := l.Handle("handle")
		for _, key := range []string{"k", "other", "handle"} {
			for range 20 {
				ask(t, l, key, 1)
			}
			limits.set(key, still(200))
		}
		time.Sleep(3 * time.Minute)
		for _, key := range []string{"k", "other", "handle"} {
			if res := ask(t, l, key, 1); res.Limit != 100 {
				t.Errorf("%s without a refresh: limit %d, want 100", key, res.Limit)
			}
		}
		invalidate(t, l, "k")
		invalidate(t, l, "handle")
		invalidate(t, l, "unknown")
		if res := ask(t, l, "k", 1); res.Limit != 200 {
			t.Errorf("the limit is %d, want 200", res.Limit)
		}
		if res := must(t)(handle.Allow(t.Context())); res.Limit != 200 {
			t.Errorf("the limit of a handle is %d, want 200", res.Limit)
		}
		if res := ask(t, l, "other", 1); res.Limit != 100 {
			t.Errorf("another key has the limit %d, want 100", res.Limit)
		}
		limits.set("other", still(300))
		limits.set("handle", still(300))
		if err := l.InvalidateAll(); err != nil {
			t.Error(err)
		}
		for range 2 {
			other, handled := ask(t, l, "other", 1), must(t)(handle.Allow(t.Context()))
			if other.Limit != 300 || handled.Limit != 300 || other.Remaining > 280 {
				t.Errorf("after InvalidateAll: %+v and %+v, want the limit 300 and no refill", other, handled)
			}
		}
		for range 50 {
			ask(t, l, "k", 1)
		}
		if n := len(limits.questions("k")); n != 3 {
			t.Errorf("LimitFor was asked %d times, want 3", n)
		}
		for key, want := range map[string]error{"": hybridlimit.ErrEmptyKey, strings.Repeat("x", 513): hybridlimit.ErrKeyTooLong} {
			if err := l.Invalidate(key); !errors.Is(err, want) {
				t.Errorf("Invalidate(%.10q): %v, want %v", key, err, want)
			}
		}
		plain := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Name: "plain"})
		ask(t, plain, "k", 1)
		invalidate(t, plain, "k")
		shutdown(t, l)
		balance(t, l.Stats())
		if err := l.Invalidate("k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Invalidate of a closed limiter: %v", err)
		}
		if err := l.InvalidateAll(); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("InvalidateAll of a closed limiter: %v", err)
		}
	})
}

// TestAnswersThatCountNothing checks that a key in memory becomes blocked and unlimited for all calls, and that its used units
// stay used.
func TestAnswersThatCountNothing(t *testing.T) {
	inModes(t, inMemory, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		limits := newTable(still(100))
		l := newLimiter(t, b.Client(nil), still(500), hybrid.Config{Mode: mode, LimitFor: limits.limitFor, LimitRefresh: time.Second, MaxWait: time.Second})
		time.Sleep(2300 * time.Millisecond)
		for range 40 {
			ask(t, l, "k", 1)
		}
		for range 2 {
			limits.set("k", hybridlimit.Blocked())
			invalidate(t, l, "k")
			for range 300 {
				if res := ask(t, l, "k", 1); res.Allowed || res.Source != hybridlimit.SourceStatic {
					t.Fatalf("blocked: %+v", res)
				}
				time.Sleep(7 * time.Millisecond)
			}
			if i, err := l.Inspect(t.Context(), "k"); err != nil || i.Outcome != hybrid.OutcomeDeny || i.Limit != hybridlimit.Blocked() {
				t.Errorf("blocked: %v, %v", i, err)
			}
			limits.set("k", hybridlimit.Unlimited())
			invalidate(t, l, "k")
			for range 300 {
				if res := ask(t, l, "k", 1000); !res.Allowed || res.Source != hybridlimit.SourceStatic {
					t.Fatalf("unlimited: %+v", res)
				}
				time.Sleep(7 * time.Millisecond)
			}
			if n := len(limits.questions("k")); n > 30 {
				t.Errorf("LimitFor was asked %d times", n)
			}
			limits.set("k", still(100))
			invalidate(t, l, "k")
			if res := ask(t, l, "k", 1); !res.Allowed || res.Limit != 100 || res.Remaining > 59 || res.Remaining < 57 {
				t.Errorf("counted again: %+v", res)
			}
		}
		shutdown(t, l)
		balance(t, l.Stats())
	})
}

// TestRefreshWithoutRedis checks that an upgrade arrives during an outage.
func TestRefreshWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		limits := newTable(still(10))
		l := newLimiter(t, b.Client(nil), still(5), hybrid.Config{LimitFor: limits.limitFor})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "k", 1)
		b.Kill()
		for range 40 {
			ask(t, l, "k", 1)
			time.Sleep(50 * time.Millisecond)
		}
		limits.set("k", still(1000))
		time.Sleep(time.Minute)
		if res := ask(t, l, "k", 1); res.Limit != 1000 || res.Source != hybridlimit.SourceFallback {
			t.Errorf("%+v", res)
		}
	})
}

// BenchmarkInvalidateAll measures InvalidateAll with 100 000 keys in memory.
func BenchmarkInvalidateAll(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	l, err := hybrid.New(rdb, still(5), hybrid.Config{
		Name: "bench", MaxKeys: 200_000, MaxWait: -1, LimitFor: func(string) hybridlimit.Limit { return still(5) },
		Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for i := range 100_000 {
		if _, err := l.Charge(b.Context(), strconv.Itoa(i), 1); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := l.InvalidateAll(); err != nil {
			b.Fatal(err)
		}
	}
}
