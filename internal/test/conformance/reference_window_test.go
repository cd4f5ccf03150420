package conformance

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// windowed is a fixed window or a sliding log that is simple enough to be correct: a list
// of admissions with their times. faulty makes it wrong in one way. It has no verbs besides Reserve and Refund.
type windowed struct {
	Limiter // nil

	limit  hybridlimit.Limit
	faulty string

	mu     sync.Mutex
	keys   map[string][]*admitted
	closed bool
}

type admitted struct {
	at time.Time
	n  int64
}

// ofWindow is the prefix of the names of the faults of windowed.
const ofWindow = "window "

func windowSpec(faulty string, of func(int64, time.Duration) hybridlimit.Limit) Spec {
	spec := specOf("")
	spec.Bucket, spec.partial = Window(of), true
	spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
		w := &windowed{limit: limit, faulty: strings.TrimPrefix(faulty, ofWindow), keys: map[string][]*admitted{}}
		tb.Cleanup(func() { _ = w.Close() })
		return w
	}
	spec.Close = func(l hybridlimit.Limiter) error { return l.(*windowed).Close() }
	return spec
}

func TestWindowsPass(t *testing.T) { runWindows(t, "") }

// otherVerbs are the cases about verbs that windowed does not have.
var otherVerbs = []string{
	"at most", "charge", "charge and refund", "give up waiting", "history", "limit of a call", "limits in turn", "peek",
	"reset", "reset after in debt", "set limit", "set limit in time", "wait",
}

// runWindows runs each case with a fixed window and with a sliding log.
func runWindows(t *testing.T, fault string) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			for _, of := range []func(int64, time.Duration) hybridlimit.Limit{hybridlimit.FixedWindow, hybridlimit.SlidingLog} {
				if !slices.Contains(otherVerbs, c.Name) {
					synctest.Test(t, func(t *testing.T) { c.Run(t, windowSpec(fault, of)) })
				}
			}
		})
	}
}

// ends returns the time at which units admitted at a time stop counting.
func (w *windowed) ends(at time.Time) time.Time {
	if w.limit.Algorithm == hybridlimit.AlgSlidingLog {
		return at.Add(w.limit.Period)
	}
	into := time.Duration(at.UnixNano() % int64(w.limit.Period))
	return at.Add(w.limit.Period - into)
}

// counting returns the admissions of a key that still count, and their units.
func (w *windowed) counting(key string) (list []*admitted, used int64) {
	now := time.Now()
	w.keys[key] = slices.DeleteFunc(w.keys[key], func(a *admitted) bool { return a.n == 0 || !w.ends(a.at).After(now) })
	for _, a := range w.keys[key] {
		used += a.n
	}
	return w.keys[key], used
}

// answer decides on n units, and takes them if it admits them.
func (w *windowed) answer(key string, n int64) (hybridlimit.Result, *admitted, error) {
	if w.closed {
		return hybridlimit.Result{}, nil, hybridlimit.ErrClosed
	}
	if err := adapter.CheckRequest(key, n, 0); err != nil {
		return hybridlimit.Result{}, nil, err
	}
	now := time.Now()
	list, used := w.counting(key)
	res := hybridlimit.Result{Limit: w.limit.Rate, Source: hybridlimit.SourceLocal}
	var taken *admitted
	switch {
	case n > w.limit.Rate:
		res.RetryAfter = hybridlimit.Never
	case used+n <= w.limit.Rate:
		taken = &admitted{now, n}
		list, used = append(list, taken), used+n
		w.keys[key] = list
		res.Allowed, res.Granted = true, n
	default:
		left := used + n - w.limit.Rate // units that must stop counting first
		for _, a := range list {
			if left -= a.n; left <= 0 {
				res.RetryAfter = w.ends(a.at).Sub(now)
				break
			}
		}
	}
	res.Remaining = max(0, w.limit.Rate-used)
	if used > 0 {
		res.ResetAfter = w.ends(list[len(list)-1].at).Sub(now)
	}
	return res, taken, nil
}

func (w *windowed) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return w.AllowN(ctx, key, 1)
}

func (w *windowed) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	res, _, err := w.answer(key, n)
	return res, err
}

func (w *windowed) Reserve(_ context.Context, key string, n int64) (*hybridlimit.Reservation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	res, taken, err := w.answer(key, n)
	if err == nil && n > w.limit.Rate {
		err = hybridlimit.ErrExceedsBurst
	}
	if err != nil {
		return nil, err
	}
	return hybridlimit.NewReservation(res, func(ctx context.Context) error {
		if w.faulty == "cancels in the next one" {
			_, err := w.Refund(ctx, key, n)
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		taken.n = 0
		return nil
	}), nil
}

func (w *windowed) Refund(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := adapter.CheckRequest(key, n, 0); err != nil {
		return hybridlimit.Result{}, err
	}
	list, _ := w.counting(key)
	list = slices.Clone(list)
	if w.faulty == "refunds the latest" {
		slices.Reverse(list)
	}
	for _, a := range list {
		off := min(n, a.n)
		a.n, n = a.n-off, n-off
	}
	if w.faulty == "refunds to the next one" && n > 0 {
		w.keys[key] = append(w.keys[key], &admitted{time.Now(), -n})
	}
	return hybridlimit.Result{Allowed: true}, nil
}

func (w *windowed) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return nil
}
