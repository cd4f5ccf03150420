package local

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// take acquires n permits of a key, and fails the test unless it gets them.
func take(tb fataler, l *ConcurrencyLimiter, key string, n int64) hybridlimit.Permit {
	tb.Helper()
	p, res, err := l.AcquireN(context.Background(), key, n)
	if err != nil || !res.Allowed || res.Granted != n || res.RetryAfter != 0 || p == (hybridlimit.Permit{}) {
		tb.Fatalf("%d of %q: %+v, %v", n, key, res, err)
	}
	return p
}

// refuse acquires n permits of a key, and fails the test unless it is denied.
func refuse(tb fataler, l *ConcurrencyLimiter, key string, n int64) hybridlimit.Result {
	tb.Helper()
	p, res, err := l.AcquireN(context.Background(), key, n)
	if err != nil || res.Allowed || res.Granted != 0 || res.RetryAfter <= 0 || p != (hybridlimit.Permit{}) {
		tb.Fatalf("%d of %q: %+v, %v", n, key, res, err)
	}
	return res
}

func TestConcurrencyCounts(t *testing.T) {
	l := permits(t, hybridlimit.Concurrent(3), ConcurrencyConfig{Name: "c"})
	one, two := take(t, l, "k", 1), take(t, l, "k", 2)
	other := take(t, l, "other", 3)
	want := hybridlimit.Result{Limit: 3, RetryAfter: retryHint, Source: hybridlimit.SourceLocal, Policy: "c"}
	if res := refuse(t, l, "k", 1); res != want {
		t.Errorf("%+v, want %+v", res, want)
	}
	want.RetryAfter, want.Source = hybridlimit.Never, hybridlimit.SourceStatic
	if res := refuse(t, l, "k", 4); res != want {
		t.Errorf("above the limit: %+v, want %+v", res, want)
	}
	if l.Running("k") != 3 || l.Running("other") != 3 || l.Running("none") != 0 || l.Len() != 2 {
		t.Errorf("%d, %d and %d are running, in %d keys", l.Running("k"), l.Running("other"), l.Running("none"), l.Len())
	}
	two.Release()
	two.Release()
	if l.Running("k") != 1 {
		t.Errorf("%d are running after a double release", l.Running("k"))
	}
	refuse(t, l, "k", 3)
	one.Release()
	other.Release()
	take(t, l, "k", 3).Release()
	if l.Len() != 0 || l.Running("k") != 0 {
		t.Errorf("%d keys are held without a call", l.Len())
	}
}

func TestConcurrencyPeek(t *testing.T) {
	l := permits(t, hybridlimit.Concurrent(2), ConcurrencyConfig{Name: "c"})
	peek := func() hybridlimit.Result {
		res, err := l.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := peek(); !res.Allowed || res.Remaining != 2 || res.Limit != 2 || res.Granted != 0 {
		t.Errorf("%+v", res)
	}
	if l.Len() != 0 {
		t.Error("Peek holds a key")
	}
	held := take(t, l, "k", 2)
	if res := peek(); res.Allowed || res.Remaining != 0 || res.RetryAfter != retryHint {
		t.Errorf("%+v", res)
	}
	if err := l.Reset(t.Context(), "k"); err != nil || l.Running("k") != 2 {
		t.Errorf("Reset: %v, and %d are running", err, l.Running("k"))
	}
	held.Release()
}

func TestConcurrencyBadInput(t *testing.T) {
	l := permits(t, hybridlimit.Concurrent(2), ConcurrencyConfig{MaxKeyBytes: 10})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		key  string
		n    int64
		want error
	}{
		"an empty key":   {t.Context(), "", 1, hybridlimit.ErrEmptyKey},
		"a huge key":     {t.Context(), strings.Repeat("k", 1<<20), 1, hybridlimit.ErrKeyTooLong},
		"no permit":      {t.Context(), "k", 0, hybridlimit.ErrCost},
		"less than none": {t.Context(), "k", math.MinInt64, hybridlimit.ErrCost},
		"an ended ctx":   {ended, "k", 1, context.Canceled},
	} {
		if p, res, err := l.AcquireN(tc.ctx, tc.key, tc.n); !errors.Is(err, tc.want) || p != (hybridlimit.Permit{}) || res != (hybridlimit.Result{}) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if _, err := l.Peek(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
		t.Errorf("Peek: %v", err)
	}
	if err := l.Reset(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
		t.Errorf("Reset: %v", err)
	}
	for _, n := range []int64{3, math.MaxInt64} {
		if res := refuse(t, l, "k", n); res.RetryAfter != hybridlimit.Never {
			t.Errorf("%d of 2: %+v", n, res)
		}
	}
	_, one := l.Allow(t.Context(), "k")
	_, some := l.AllowN(t.Context(), "k", 1)
	for _, err := range []error{one, some} {
		if !errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), "use Acquire") {
			t.Errorf("Allow: %v", err)
		}
	}
	if l.Len() != 0 {
		t.Errorf("%d keys are held", l.Len())
	}
}

func TestConcurrencyConfigViolations(t *testing.T) {
	_, err := NewConcurrency(hybridlimit.Concurrent(0), ConcurrencyConfig{Name: "a b", MaxWait: -1, MaxKeys: -2, MaxKeyBytes: -3})
	const want = `local: Limit.Rate (0) must be at least 1; ConcurrencyConfig.Name ("a b") must be 1 to 128 of [A-Za-z0-9_.-]; ` +
		`ConcurrencyConfig.MaxKeys (-2) must not be negative; ConcurrencyConfig.MaxKeyBytes (-3) must not be negative; ConcurrencyConfig.MaxWait (-1ns) must not be negative`
	if !errors.Is(err, hybridlimit.ErrInvalid) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, limit := range everyAlgorithm(5, time.Second) {
		if l, err := NewConcurrency(limit, ConcurrencyConfig{}); l != nil || !errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), "use New") {
			t.Errorf("%v: %v", limit, err)
		}
	}
	if got := permits(t, hybridlimit.Concurrent(1), ConcurrencyConfig{}).cfg; got.MaxKeys != 100_000 || got.MaxKeyBytes != adapter.DefaultMaxKeyBytes || got.MaxWait != 0 {
		t.Errorf("defaults: %+v", got)
	}
}

func TestConcurrencyStaticLimits(t *testing.T) {
	l := permits(t, hybridlimit.Unlimited(), ConcurrencyConfig{MaxWait: time.Hour})
	held := take(t, l, "k", math.MaxInt64-5)
	more := take(t, l, "k", 5)
	if err := l.SetLimit(hybridlimit.Blocked()); err != nil {
		t.Fatal(err)
	}
	if res := refuse(t, l, "k", 1); res.RetryAfter != hybridlimit.Never || res.Limit != 0 {
		t.Errorf("%+v", res)
	}
	held.Release()
	more.Release()
	if err := l.SetLimit(hybridlimit.Concurrent(1)); err != nil {
		t.Fatal(err)
	}
	take(t, l, "k", 1).Release()
	for _, bad := range []hybridlimit.Limit{{}, hybridlimit.Concurrent(-1), hybridlimit.PerSecond(5)} {
		if err := l.SetLimit(bad); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if got := l.Policy("k"); got.Limit != hybridlimit.Concurrent(1) {
		t.Errorf("%+v", got)
	}
}

func TestConcurrencyLimitFor(t *testing.T) {
	limits := map[string]hybridlimit.Limit{"big": hybridlimit.Concurrent(5), "none": hybridlimit.Blocked(), "all": hybridlimit.Unlimited(), "rate": hybridlimit.PerSecond(1)}
	first := hybridlimit.Concurrent(2)
	l := permits(t, first, ConcurrencyConfig{LimitFor: func(key string) hybridlimit.Limit {
		if key == "panics" {
			panic("no plan")
		}
		if limit, ok := limits[key]; ok {
			return limit
		}
		return first
	}})
	for key, n := range map[string]int64{"big": 5, "all": 100, "k": 2} {
		p := take(t, l, key, n)
		if key != "all" {
			refuse(t, l, key, 1)
		}
		if got := l.Policy(key); key != "k" && got.Limit != limits[key] {
			t.Errorf("%s: %+v", key, got)
		}
		p.Release()
	}
	refuse(t, l, "none", 1)
	for _, key := range []string{"rate"} {
		if _, _, err := l.Acquire(t.Context(), key); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), `LimitFor("rate")`) {
			t.Errorf("%s: %v", key, err)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _, _ = l.Acquire(t.Context(), "panics")
	}()
	// The key's own limit changes while calls run, and SetLimit does not concern it.
	held := take(t, l, "big", 5)
	limits["big"] = hybridlimit.Concurrent(6)
	take(t, l, "big", 1).Release()
	if err := l.SetLimit(hybridlimit.Concurrent(1)); err != nil {
		t.Fatal(err)
	}
	take(t, l, "big", 1).Release()
	refuse(t, l, "k", 2)
	limits["big"] = first // as the others
	if res := refuse(t, l, "big", 1); res.Limit != 1 {
		t.Errorf("%+v", res)
	}
	held.Release()
	if l.Len() != 0 {
		t.Errorf("%d keys are held", l.Len())
	}
}

// MaxKeys keys with running calls: nothing is evicted, and the next key is an error.
func TestConcurrencyMaxKeys(t *testing.T) {
	const most = 5000 // several shards
	l := permits(t, hybridlimit.Concurrent(2), ConcurrencyConfig{MaxKeys: most})
	var held []hybridlimit.Permit
	for i := range most {
		held = append(held, take(t, l, fmt.Sprint(i), 1))
	}
	for range 3 {
		if p, res, err := l.Acquire(t.Context(), "new"); !errors.Is(err, hybridlimit.ErrTooManyKeys) || p != (hybridlimit.Permit{}) || res != (hybridlimit.Result{}) {
			t.Errorf("%+v, %v", res, err)
		}
	}
	take(t, l, "7", 1).Release() // a key that is held
	held[0].Release()
	take(t, l, "new", 1).Release()
	for i, p := range held {
		if i > 0 && l.Running(fmt.Sprint(i)) != 1 {
			t.Fatalf("key %d was lost", i)
		}
		p.Release()
	}
	if l.Len() != 0 {
		t.Errorf("%d keys are held", l.Len())
	}
}

func TestConcurrencyClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queued(t, 1, time.Minute)
		held := take(t, q.l, "k", 1)
		q.call(t.Context(), "a", 1)
		q.call(t.Context(), "b", 1)
		for range 2 {
			if err := q.l.Close(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got := q.seen(); got != "a failed, b failed" && got != "b failed, a failed" {
			t.Errorf("%q", got)
		}
		_, _, acquire := q.l.Acquire(t.Context(), "k")
		_, peek := q.l.Peek(t.Context(), "k")
		for name, err := range map[string]error{"Acquire": acquire, "Peek": peek, "SetLimit": q.l.SetLimit(hybridlimit.Concurrent(5)), "Reset": q.l.Reset(t.Context(), "k")} {
			if !errors.Is(err, hybridlimit.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if q.l.Running("k") != 1 {
			t.Errorf("%d are running", q.l.Running("k"))
		}
		held.Release()
		held.Release()
		if q.l.Len() != 0 || q.l.Running("k") != 0 {
			t.Error("the permit of a running call was not released")
		}
	})
}

// Two keys with one hash are two keys.
func TestConcurrencyEqualHashes(t *testing.T) {
	var keys atomic.Int64
	s := new(permitShard)
	s.open(5, &keys, 10)
	entries := map[string]*permitKey{}
	for _, key := range []string{"a", "b", "c"} {
		entries[key] = s.enter(7, key, ofShard)
		entries[key].running = 1
	}
	for _, key := range []string{"b", "c", "a"} { // the middle, the first, the only one
		if s.find(7, key) != entries[key] {
			t.Fatalf("%q is not found", key)
		}
		entries[key].ReleasePermits(1)
		if s.find(7, key) != nil {
			t.Fatalf("%q is found", key)
		}
	}
	if len(s.byHash) != 0 || keys.Load() != 0 || s.spares != 3 {
		t.Errorf("%d entries, %d keys, %d spares", len(s.byHash), keys.Load(), s.spares)
	}
}

func TestConcurrencyDoesNotAllocate(t *testing.T) {
	l := permits(t, hybridlimit.Concurrent(5), ConcurrencyConfig{MaxWait: time.Second})
	held := take(t, l, "held", 1)
	defer held.Release()
	long := strings.Repeat("k", adapter.DefaultMaxKeyBytes)
	for _, key := range []string{"held", "short", long} {
		take(t, l, key, 1).Release()
		if n := testing.AllocsPerRun(1000, func() {
			p, _, _ := l.Acquire(t.Context(), key)
			p.Release()
		}); n >= 1 {
			t.Errorf("a key of %d bytes: %v allocations", len(key), n)
		}
	}
}
