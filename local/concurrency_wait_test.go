package local

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// callers starts calls of a key, in their order, and returns the order in which they are
// admitted.
type callers struct {
	l     *ConcurrencyLimiter
	mu    sync.Mutex
	order []string // "3" admitted, "3 denied", "3 failed"
	held  map[string]hybridlimit.Permit
}

func (q *callers) call(ctx context.Context, name string, n int64) {
	go func() {
		p, res, err := q.l.AcquireN(ctx, "k", n)
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case err != nil:
			name += " failed"
		case !res.Allowed:
			name += " denied"
		}
		q.held[name] = p
		q.order = append(q.order, name)
	}()
	synctest.Wait()
}

// seen returns and forgets the calls that have ended their wait.
func (q *callers) seen() string {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	s := strings.Join(q.order, ", ")
	q.order = nil
	return s
}

func (q *callers) expect(t *testing.T, want string) {
	t.Helper()
	if got := q.seen(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func queued(t *testing.T, n int64, wait time.Duration) *callers {
	return &callers{l: permits(t, hybridlimit.Concurrent(n), ConcurrencyConfig{MaxWait: wait}), held: map[string]hybridlimit.Permit{}}
}

// A call of many permits is not overtaken by later small ones.
func TestConcurrencyIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queued(t, 4, time.Minute)
		ctx := t.Context()
		q.call(ctx, "a", 3)
		q.call(ctx, "big", 4)
		q.call(ctx, "small", 1) // fits, and waits behind big
		q.call(ctx, "pair", 2)
		q.expect(t, "a")
		if res, err := q.l.Peek(ctx, "k"); err != nil || res.Allowed || res.Remaining != 1 {
			t.Errorf("Peek while calls wait: %+v, %v", res, err)
		}
		q.held["a"].Release()
		q.expect(t, "big")
		q.held["big"].Release()
		synctest.Wait()
		if got := q.seen(); got != "small, pair" && got != "pair, small" { // woken at once
			t.Errorf("%q", got)
		}
		if q.l.Running("k") != 3 {
			t.Errorf("%d are running", q.l.Running("k"))
		}
	})
}

func TestConcurrencyWaitsForMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queued(t, 2, time.Second)
		held := take(t, q.l, "k", 1)
		began := time.Now()
		q.call(t.Context(), "big", 2)
		time.Sleep(500 * time.Millisecond)
		q.call(t.Context(), "small", 1) // it can run when big gives up
		q.expect(t, "")
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if got := q.seen(); got != "big denied, small" && got != "small, big denied" || time.Since(began) != time.Second {
			t.Errorf("%q after %v", got, time.Since(began))
		}
		began = time.Now()
		if res := refuse(t, q.l, "k", 3); res.RetryAfter != hybridlimit.Never || time.Since(began) != 0 {
			t.Errorf("above the limit: %+v after %v", res, time.Since(began))
		}
		if res := refuse(t, q.l, "k", 1); res.RetryAfter != retryHint || time.Since(began) != time.Second {
			t.Errorf("%+v after %v", res, time.Since(began))
		}
		held.Release()
		q.held["small"].Release()
		if q.l.Len() != 0 {
			t.Error("the key is still held")
		}
	})
}

// 10 000 calls whose contexts end while they wait leave nothing, and the next call in
// the queue is served.
func TestConcurrencyContextsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queued(t, 2, hybridlimit.Never)
		held := take(t, q.l, "k", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var failed atomic.Int64
		for range 10_000 {
			go func() {
				p, res, err := q.l.AcquireN(ctx, "k", 2)
				if errors.Is(err, context.Canceled) && p == (hybridlimit.Permit{}) && res == (hybridlimit.Result{}) {
					failed.Add(1)
				}
			}()
		}
		synctest.Wait()
		q.call(t.Context(), "last", 1)
		q.expect(t, "")
		cancel()
		synctest.Wait()
		q.expect(t, "last")
		if failed.Load() != 10_000 || q.l.Running("k") != 2 {
			t.Errorf("%d failed, %d are running", failed.Load(), q.l.Running("k"))
		}
		held.Release()
		q.held["last"].Release()
		if q.l.Len() != 0 {
			t.Error("the key is still held")
		}
	})
}

// The number of permits changes while calls run and wait.
func TestConcurrencySetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queued(t, 3, time.Minute)
		set := func(n int64) {
			if err := q.l.SetLimit(hybridlimit.Concurrent(n)); err != nil {
				t.Fatal(err)
			}
		}
		ctx := t.Context()
		var held []hybridlimit.Permit
		for range 3 {
			held = append(held, take(t, q.l, "k", 1))
		}
		q.call(ctx, "a", 1)
		q.call(ctx, "b", 3)
		set(4)
		q.expect(t, "a") // at once
		set(2)           // below the four that run: b can never run now
		q.expect(t, "b denied")
		q.call(ctx, "c", 1)
		held[0].Release()
		held[1].Release()
		q.expect(t, "") // two of two run
		if q.l.Running("k") != 2 {
			t.Errorf("%d are running", q.l.Running("k"))
		}
		held[2].Release()
		q.expect(t, "c")
		set(1)
		refused := func(p hybridlimit.Permit, res hybridlimit.Result, err error) {
			if err != nil || res.Allowed || res.Remaining != 0 || res.Limit != 1 {
				t.Errorf("two of one run: %+v, %v", res, err)
			}
		}
		refused(q.l.Acquire(ctx, "k"))
		q.held["a"].Release()
		q.held["c"].Release()
		if q.l.Len() != 0 {
			t.Error("the key is still held")
		}
		if res := q.l.Policy("k"); res.Limit != hybridlimit.Concurrent(1) {
			t.Errorf("%+v", res)
		}
	})
}
