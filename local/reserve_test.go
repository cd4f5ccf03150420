package local

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

// hand is a clock that a test sets.
type hand struct{ now time.Time }

func (h *hand) time() time.Time { return h.now }

func reserve(tb fataler, l *Limiter, h *hand, n int64) *hybridlimit.Reservation {
	tb.Helper()
	r, err := l.reserveAt(h.time, "k", n, "")
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestReserveGoesIntoDebt(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(10, time.Second, 5), hybridlimit.LeakyBucket(10, time.Second, 5),
	} {
		l, start := at(t, limit, Config{Name: "p"})
		h := &hand{start}
		for i, want := range []struct {
			n              int64
			ok             bool
			remaining      int64
			delay, retryIn time.Duration
			reset          time.Duration
		}{
			{3, true, 2, 0, 0, 300 * ms},
			{3, true, 0, 100 * ms, 0, 600 * ms},
			{4, true, 0, 500 * ms, 0, 1000 * ms}, // a burst of debt
			{1, false, 0, 0, 100 * ms, 1000 * ms},
			{5, false, 0, 0, 500 * ms, 1000 * ms},
		} {
			r := reserve(t, l, h, want.n)
			res := hybridlimit.Result{
				Allowed: want.ok, Limit: 5, Remaining: want.remaining, RetryAfter: want.retryIn, ResetAfter: want.reset,
				Delay: want.delay, Source: hybridlimit.SourceLocal, Policy: "p",
			}
			if want.ok {
				res.Granted = want.n
			}
			if r.Result != res {
				t.Errorf("%v, step %d:\n got %+v\nwant %+v", limit, i, r.Result, res)
			}
		}
		// Allow is denied until the debt is paid, with the right RetryAfter.
		if res := ask(t, l, start, "k", 2); res.Allowed || res.RetryAfter != 700*ms {
			t.Errorf("%v: in debt: %+v", limit, res)
		}
		if _, err := l.reserveAt(h.time, "k", 6, ""); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
			t.Errorf("above the burst: %v", err)
		}
		if _, err := l.reserveAt(h.time, "", 1, ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
			t.Errorf("no key: %v", err)
		}
	}
}

// TestReserveElsewhere checks Reserve with the other algorithms.
func TestReserveElsewhere(t *testing.T) {
	for _, tc := range []struct {
		limit                  hybridlimit.Limit
		delay, retryIn, nextIn time.Duration
	}{
		{hybridlimit.LeakyQueue(10, time.Second, 5), 300 * ms, 100 * ms, 400 * ms},
		{hybridlimit.FixedWindow(5, time.Second), 0, time.Second, 0},
		{hybridlimit.SlidingWindow(5, time.Second), 0, time.Second + 200*ms, 0},
		{hybridlimit.SlidingLog(5, time.Second), 0, time.Second, 0},
	} {
		l, start := at(t, tc.limit, Config{})
		h := &hand{start}
		if r := reserve(t, l, h, 3); !r.Allowed || r.Delay != 0 {
			t.Errorf("%v: fresh: %+v", tc.limit, r.Result)
		}
		if r := reserve(t, l, h, 2); !r.Allowed || r.Delay != tc.delay || r.Remaining != 0 {
			t.Errorf("%v: with 3 taken: %+v", tc.limit, r.Result)
		}
		r := reserve(t, l, h, 1)
		if r.Allowed || r.Granted != 0 || r.Delay != 0 || r.RetryAfter != tc.retryIn {
			t.Errorf("%v: full: %+v", tc.limit, r.Result)
		}
		h.now = start.Add(r.RetryAfter - 1)
		if r := reserve(t, l, h, 1); r.Allowed {
			t.Errorf("%v: a nanosecond early: %+v", tc.limit, r.Result)
		}
		h.now = start.Add(r.RetryAfter)
		if r := reserve(t, l, h, 1); !r.Allowed || r.Delay != tc.nextIn {
			t.Errorf("%v: in time: %+v", tc.limit, r.Result)
		}
	}
}

func TestCancelGivesBack(t *testing.T) {
	ctx := context.Background()
	eachAlgorithm(t, 10, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		l, start := at(t, limit, Config{})
		h := &hand{start}
		ask(t, l, h.now, "k", 2)
		before := mustPeek(t, l, h.now)
		r := reserve(t, l, h, 5)
		for range 2 { // the second does nothing
			if err := r.Cancel(ctx); err != nil {
				t.Fatal(err)
			}
			if got := mustPeek(t, l, h.now); got != before {
				t.Errorf("after Cancel %+v, before Reserve %+v", got, before)
			}
		}
		reserve(t, l, h, 8)
		refused := reserve(t, l, h, 9)
		held := mustPeek(t, l, h.now)
		if err := refused.Cancel(ctx); err != nil || refused.Allowed && limit.Algorithm > hybridlimit.AlgLeakyBucket {
			t.Fatalf("%v, %+v", err, refused.Result)
		}
		if got := mustPeek(t, l, h.now); !refused.Allowed && got != held {
			t.Errorf("cancelling a denied reservation changed the key: %+v, want %+v", got, held)
		}
		// Cancel gives back nothing for a key that was reset since, or after
		// Close.
		r = reserve(t, l, h, 1)
		if err := l.Reset(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		ask(t, l, h.now, "k", 6)
		was := mustPeek(t, l, h.now)
		if err := r.Cancel(ctx); err != nil || mustPeek(t, l, h.now) != was {
			t.Errorf("cancelled after Reset: %v, %+v", err, mustPeek(t, l, h.now))
		}
		r = reserve(t, l, h, 1)
		if err := errors.Join(l.Close(), r.Cancel(ctx)); err != nil {
			t.Error(err)
		}
	})
}

// TestCancelInTheMiddleOfAQueue checks that later places keep their start after a Cancel,
// and that no other call starts together with them. A gap closes when all places behind
// it are cancelled.
func TestCancelInTheMiddleOfAQueue(t *testing.T) {
	ctx := context.Background()
	l, start := at(t, hybridlimit.LeakyQueue(10, time.Second, 10), Config{})
	h := &hand{start}
	a, b, c := reserve(t, l, h, 1), reserve(t, l, h, 1), reserve(t, l, h, 1)
	next := func(want time.Duration) *hybridlimit.Reservation {
		t.Helper()
		r := reserve(t, l, h, 2)
		if r.Delay != want {
			t.Fatalf("starts after %v, want %v", r.Delay, want)
		}
		return r
	}
	cancel := func(rs ...*hybridlimit.Reservation) {
		t.Helper()
		for _, r := range rs {
			if err := r.Cancel(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel(b)
	cancel(next(300 * ms))
	cancel(c)
	d := next(100 * ms)
	h.now = h.now.Add(50 * ms)
	cancel(a, next(250*ms)) // a is half served, and the caller of d has its start
	cancel(d)               // closes the gap of a too
	cancel(next(0))
	if res := mustPeek(t, l, h.now); res.Remaining != 10 || res.ResetAfter != 0 {
		t.Errorf("all reservations are cancelled, but the queue is not empty: %+v", res)
	}
}

// TestQueueNeverOvertakes cancels in any order. It checks that the starts of two
// remaining calls are at least the service time of the first apart, and that the queue
// is empty after all are cancelled.
func TestQueueNeverOvertakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := hybridlimit.LeakyQueue(rapid.Int64Range(1, 1000).Draw(t, "rate"), time.Second, rapid.Int64Range(1, 30).Draw(t, "burst"))
		l, start := at(t, limit, Config{})
		h := &hand{start}
		type place struct {
			r    *hybridlimit.Reservation
			from time.Time
		}
		var there []place
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h.now = h.now.Add(anyPause(t, limit) / 8)
			if len(there) > 0 && rapid.Bool().Draw(t, "cancel") {
				i := rapid.IntRange(0, len(there)-1).Draw(t, "which")
				if there[i].from.After(h.now) { // a started call has left
					if err := there[i].r.Cancel(context.Background()); err != nil {
						t.Fatal(err)
					}
					there = slices.Delete(there, i, i+1)
				}
				continue
			}
			r := reserve(t, l, h, rapid.Int64Range(1, limit.Burst).Draw(t, "n"))
			if !r.Allowed {
				continue
			}
			p := place{r, h.now.Add(r.Delay)}
			for _, q := range there {
				if took := timeOf(limit, q.r.Granted); p.from.Sub(q.from) < took-1 {
					t.Fatalf("a call starts %v after one that takes %v", p.from.Sub(q.from), took)
				}
			}
			there = append(there, p)
		}
		for _, i := range rapid.Permutation(there).Draw(t, "leaving") {
			if i.from.After(h.now) {
				if err := i.r.Cancel(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
		var busy time.Duration // until the started calls are served
		for _, p := range there {
			if !p.from.After(h.now) {
				busy = max(busy, p.from.Add(timeOf(limit, p.r.Granted)).Sub(h.now))
			}
		}
		if res := mustPeek(t, l, h.now); res.ResetAfter > busy+1 {
			t.Fatalf("all calls are cancelled, and the queue is empty after %v, want %v", res.ResetAfter, busy)
		}
	})
}

// TestCancelKnowsWhereUnitsAre checks that Cancel gives units back to the window in which
// they were taken, and in a log until they leave.
func TestCancelKnowsWhereUnitsAre(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		limit     hybridlimit.Limit
		later     time.Duration
		remaining int64 // of 10, of which 4 were used before, 3 are given back, and 2 were used since
	}{
		{hybridlimit.FixedWindow(10, time.Second), 999 * ms, 4},
		{hybridlimit.FixedWindow(10, time.Second), 1000 * ms, 8},
		{hybridlimit.SlidingWindow(10, time.Second), 999 * ms, 4},
		{hybridlimit.SlidingWindow(10, time.Second), 1500 * ms, 6},
		{hybridlimit.SlidingWindow(10, time.Second), 2000 * ms, 8},
		{hybridlimit.SlidingLog(10, time.Second), 999 * ms, 4},
		{hybridlimit.SlidingLog(10, time.Second), 1000 * ms, 8},
	} {
		l, start := at(t, tc.limit, Config{})
		h := &hand{start}
		ask(t, l, start, "k", 4)
		r := reserve(t, l, h, 3)
		h.now = start.Add(tc.later)
		ask(t, l, h.now, "k", 2)
		if err := r.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
		if got := mustPeek(t, l, h.now).Remaining; got != tc.remaining {
			t.Errorf("%v, cancelled after %v: %d remain, want %d", tc.limit, tc.later, got, tc.remaining)
		}
	}
}

// TestCancelNeverGivesTooMuch checks three properties of buckets. After a Cancel, a bucket
// holds at most the units that it would hold if the cancelled units had never been
// taken. The other units, used at the times that their callers got, keep to the limit.
// During the delay, all units come back if no other call has booked ahead since.
func TestCancelNeverGivesTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := anyLimit(t)
		l, start := at(t, limit, Config{})
		h := &hand{start}
		type taking struct {
			at, use time.Time
			n       int64
			r       *hybridlimit.Reservation
			cancels int // before it
			booked  int // ahead, with it
		}
		var took []taking
		cancels, booked := 0, 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if h.now = h.now.Add(anyPause(t, limit)); h.now.Sub(start) > 100*365*24*time.Hour {
				return
			}
			n := logInt(t, limit.BurstSize(), "n")
			if len(took) == 0 || rapid.Bool().Draw(t, "take") {
				if r := reserve(t, l, h, n); r.Allowed {
					if r.Delay > 0 {
						booked++
					}
					took = append(took, taking{h.now, h.now.Add(r.Delay), n, r, cancels, booked})
				}
				continue
			}
			i := rapid.IntRange(0, len(took)-1).Draw(t, "which")
			before := mustPeek(t, l, h.now).ResetAfter
			if err := took[i].r.Cancel(context.Background()); err != nil {
				t.Fatal(err)
			}
			after := mustPeek(t, l, h.now)
			if h.now.Before(took[i].at.Add(took[i].r.Delay)) && took[i].cancels == cancels && took[i].booked == booked {
				back := max(0, before-timeOf(limit, took[i].n))
				if off := back - after.ResetAfter; off > 1000+before>>40 || -off > 1000+before>>40 {
					t.Fatalf("%d units given back during the delay: the time to full is %v, was %v", took[i].n, after.ResetAfter, before)
				}
			}
			cancels++
			took = append(took[:i], took[i+1:]...)
			never := newIdeal(limit, start)
			for _, k := range took {
				never.advance(k.at)
				never.take(k.n)
			}
			never.admissions = 1000 // the real bucket has rounded more often than the ideal one counts
			never.last, never.level = h.now, never.level.Add(never.level, never.refill(h.now.Sub(never.last)))
			if never.level.Cmp(never.size) > 0 {
				never.level.Set(never.size)
			}
			if blur := never.blur(); !never.holds(limit.BurstSize(), after.ResetAfter+blur) {
				t.Fatalf("full after %v; without the cancelled units, the level would be %v of %v", after.ResetAfter, never.level, never.size)
			}
		}
		slices.SortFunc(took, func(a, b taking) int { return a.use.Compare(b.use) })
		for i, from := range took {
			sum := int64(0)
			for _, to := range took[i:] {
				sum += to.n
				span := to.use.Sub(from.use)
				if most := limit.TimeToFull() + span; timeOf(limit, sum) > most+1000+most>>40 {
					t.Fatalf("%d units are used within %v", sum, span)
				}
			}
		}
	})
}

// TestCancelAsTimeRate cancels one of several bookings, and checks that as many units
// come back as with golang.org/x/time/rate.
func TestCancelAsTimeRate(t *testing.T) {
	costs := []int64{10, 3, 4, 2}
	for which := range costs {
		l, start := at(t, hybridlimit.TokenBucket(10, time.Second, 10), Config{})
		h, lim := &hand{start}, rate.NewLimiter(10, 10)
		ask(t, l, start, "k", 1)
		lim.AllowN(start, 1)
		var ours []*hybridlimit.Reservation
		var theirs []*rate.Reservation
		for _, n := range costs {
			r, x := reserve(t, l, h, n), lim.ReserveN(start, int(n))
			if !r.Allowed || r.Delay != x.DelayFrom(start) {
				t.Fatalf("%d units: %+v, want a delay of %v", n, r.Result, x.DelayFrom(start))
			}
			ours, theirs = append(ours, r), append(theirs, x)
		}
		if err := ours[which].Cancel(context.Background()); err != nil {
			t.Fatal(err)
		}
		theirs[which].CancelAt(start)
		want := time.Duration((10 - lim.TokensAt(start)) * float64(time.Second) / 10)
		if got := mustPeek(t, l, start).ResetAfter; (got - want).Abs() > time.Microsecond {
			t.Errorf("%d units of %v cancelled: %v to full, want %v", costs[which], costs, got, want)
		}
	}
}

// TestAllWhoCancelGiveBackAll cancels all bookings ahead in any order, and checks that
// the state is the one before them.
func TestAllWhoCancelGiveBackAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, start := at(t, hybridlimit.TokenBucket(10, time.Second, 20), Config{})
		h := &hand{start}
		ask(t, l, start, "k", 20)
		var booked []*hybridlimit.Reservation
		for range rapid.IntRange(1, 12).Draw(t, "bookings") {
			if r := reserve(t, l, h, rapid.Int64Range(1, 8).Draw(t, "n")); r.Allowed {
				booked = append(booked, r)
			}
		}
		for _, r := range rapid.Permutation(booked).Draw(t, "leaving") {
			if err := r.Cancel(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if res := mustPeek(t, l, h.now); res.ResetAfter != 2*time.Second || res.Remaining != 0 {
			t.Fatalf("all bookings are cancelled: %+v, want a reset after 2s and none remaining", res)
		}
		if e := l.held("k"); len(e.book.gaps) != 0 {
			t.Fatalf("gaps are left: %+v", e.book)
		}
	})
}

// timeOf returns the time in which n units refill.
func timeOf(limit hybridlimit.Limit, n int64) time.Duration {
	limit.Burst = n
	return limit.TimeToFull()
}

// TestCancelAtTheInstantOfAChange checks that a reservation made at the instant of a change of the period can be
// cancelled, whether it was made just before or just after.
func TestCancelAtTheInstantOfAChange(t *testing.T) {
	for _, before := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := must(t, hybridlimit.SlidingWindow(10, time.Minute), Config{})
			askNow(t, l, 1) // the key is held
			time.Sleep(3 * time.Minute)
			reserve := func() *hybridlimit.Reservation {
				r, err := l.Reserve(t.Context(), "k", 4)
				if err != nil || !r.Allowed {
					t.Fatalf("%+v, %v", r, err)
				}
				return r
			}
			var r *hybridlimit.Reservation
			if before {
				r = reserve()
			}
			if err := l.SetLimit(hybridlimit.SlidingWindow(10, time.Hour)); err != nil {
				t.Fatal(err)
			}
			askNow(t, l, 1) // the key has the new limit
			if !before {
				r = reserve()
			}
			if err := r.Cancel(t.Context()); err != nil || left(t, l, "k") != 9 {
				t.Errorf("before the change %t: %d units left, %v", before, left(t, l, "k"), err)
			}
		})
	}
}
