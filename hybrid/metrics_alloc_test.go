package hybrid

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// TestSyncsDoNotAllocateForMetrics checks that a sync allocates as much with a provider
// as without one, and that recording its findings allocates nothing. In a bubble time
// stands still while this test works, so no other goroutine allocates.
func TestSyncsDoNotAllocateForMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var perSync []float64
		for _, cfg := range []HubConfig{{}, {MeterProvider: noop.NewMeterProvider()}} {
			cfg.Logger = slog.New(slog.DiscardHandler)
			l, err := New(b.Client(nil), hybridlimit.TokenBucket(1, time.Hour, 5), Config{Name: "api", Mode: ModeDeferred, Hub: cfg})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if (l.terms.Hist == nil) != (cfg.MeterProvider == nil) {
				t.Fatalf("histograms %v with provider %v", l.terms.Hist, cfg.MeterProvider)
			}
			synctest.Wait()
			e, _, err := l.terms.Lock("k", nil)
			if err != nil {
				t.Fatal(err)
			}
			e.Unlock()
			in := e.Plan.Load().Bucket
			for what, note := range map[string]func(){
				"debt": func() { l.terms.Found(in, -in.Unit) }, "no debt": func() { l.terms.Found(in, in.Unit) },
				"an age": func() { l.terms.Hist.Stale(1) }, "no age": func() { l.terms.Hist.Stale(-1) },
			} {
				if n := testing.AllocsPerRun(100, note); n != 0 {
					t.Errorf("provider %v: noting %s allocates %v times", cfg.MeterProvider, what, n)
				}
			}
			perSync = append(perSync, testing.AllocsPerRun(100, func() {
				charge(e)
				if _, ok := e.Freeze(time.Time{}); !ok {
					t.Error("the entry has nothing to sync")
				}
				var a ratesync.Answer
				a.Level, a.Cap = -in.Unit, in.Cap
				e.Settle(a)
			}))
			if s := l.Stats(); s.Overshoot != 1 || s.Overshoots < 200 || s.Ops < 100 {
				t.Errorf("%+v", s)
			}
		}
		if perSync[0] != perSync[1] {
			t.Errorf("a sync allocates %v times without a provider, %v with one", perSync[0], perSync[1])
		}
	})
}

// These histograms call look, which checks that an entry is not locked.
type (
	lookingInt64 struct {
		noop.Int64Histogram
		look func()
	}
	lookingFloat64 struct {
		noop.Float64Histogram
		look func()
	}
)

func (h lookingInt64) Record(context.Context, int64, ...metric.RecordOption)     { h.look() }
func (h lookingFloat64) Record(context.Context, float64, ...metric.RecordOption) { h.look() }

// TestInstrumentsRunUnderNoLock checks that no lock is held while an instrument runs,
// because an instrument is the user's code.
func TestInstrumentsRunUnderNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l, err := New(b.Client(nil), hybridlimit.TokenBucket(1, time.Hour, 5), Config{
			Name: "api", Mode: ModeDeferred, Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		e, _, err := l.terms.Lock("k", nil)
		if err != nil {
			t.Fatal(err)
		}
		e.Unlock()
		answer := ratesync.Answer{RedisNow: 1}
		sync := func() {
			charge(e)
			e.Freeze(time.Time{})
			e.Settle(answer)
		}
		sync() // there is a view now
		looks := 0
		look := func() {
			looks++
			if !e.TryLock() {
				t.Errorf("record %d: the entry is locked", looks)
				return
			}
			e.Unlock()
		}
		l.terms.Hist = &tell.Histograms{Overshoot: lookingInt64{look: look}, Staleness: lookingFloat64{look: look}}
		sync()
		charge(e)
		e.Freeze(time.Time{})
		e.Lock()
		e.Asks = keys.Evicted
		e.Unlock()
		e.Settle(answer)
		if looks != 4 {
			t.Errorf("%d records, want 4", looks)
		}
	})
}

// TestDebtIsRoundedUp checks that every debt is recorded, rounded up to whole units. So a
// debt within a bound of whole units is never recorded as more than the bound.
func TestDebtIsRoundedUp(t *testing.T) {
	r := account.NewPlan(hybridlimit.TokenBucket(1, time.Hour, 5))
	for level, want := range map[int64]int64{
		r.Bucket.Cap: 0, 1: 0, 0: 0, -1: 1, -r.Bucket.Unit: 1, -r.Bucket.Unit - 1: 2, -r.Bucket.Cap: 5,
	} {
		var l Limiter
		l.terms.Found(r.Bucket, level)
		if got := l.terms.Count.Worst.Load(); got != want || (want > 0) != (l.terms.Count.Indebted.Load() == 1) {
			t.Errorf("level %d is a debt of %d, want %d", level, got, want)
		}
	}
	var l Limiter
	for _, units := range []int64{1, 3, 2} {
		l.terms.Found(r.Bucket, -units*r.Bucket.Unit)
	}
	if worst, n := l.terms.Count.Worst.Load(), l.terms.Count.Indebted.Load(); worst != 3 || n != 3 {
		t.Errorf("debts of 1, 3 and 2: largest %d of %d", worst, n)
	}
}

// charge makes an entry owe one unit more.
func charge(e *keys.Entry) {
	e.Lock()
	defer e.Unlock()
	now := e.Terms.Clock.Now()
	c := e.Conditions(e.Plan.Load(), now)
	e.Begin(now)
	e.Account.Charge(&c, 1, now)
}
