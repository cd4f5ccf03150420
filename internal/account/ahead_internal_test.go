package account

import (
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// leaseOfNext is an answer that Redis gave 200 ms before the end of window 5, with 3 units of window 6. The op was sent 2 ms
// before it came, at 1 s.
func leaseOfNext() Answer {
	return Answer{Answer: algo.Answer{Cap: 7, Level: 10, Lease: 3, Gen: 6, Life: algo.Generation, Ends: 200e3}, RedisNow: 5_800_000, Sent: sec - 2*ms}
}

// aheadOf returns an account that got an answer with a lease of another window at 1 s.
func aheadOf(c *Conditions, ans Answer) (a *Account, lost int64) {
	a = &Account{frozen: true, askedAhead: ans.Gen}
	_, lost = a.settle(c, ans, nil, sec)
	return a, lost
}

// busy makes an account have a steady demand of n units a second.
func (a *Account) busy(n, now int64) {
	for i := range 10 * n {
		a.demand.note(1, now-10*sec+(i+1)*sec/n)
	}
}

// A lease of the next window begins when that has begun at the latest, and ends two ticks before it may be over. The answer
// that is sent again may come in that window, or later.
func TestLeaseOfNextWindowIsOfThatWindow(t *testing.T) {
	c := windowTerms()
	const period = sec
	for _, tc := range []struct {
		name       string
		redisNow   int64 // µs
		ends       int64 // µs
		begin, end int64 // ns
		lost       int64 // at once
	}{
		{"in its own window", 5_800_000, 200e3, sec + 200*ms, sec - 2*ms + 200*ms + period, 0},
		{"at the end of it", 5_999_999, 1, sec + 1000, sec - 2*ms + 1000 + period, 0},
		{"after a step of the clock back before it", 4_900_000, 1_100_000, sec + 1100*ms, sec - 2*ms + 1100*ms + period, 0},
		{"again in the next window", 6_300_000, 700e3, sec + 700*ms - period, sec - 2*ms + 700*ms, 0},
		{"again at the end of that", 6_995_000, 5e3, sec + 5*ms - period, sec - 2*ms + 5*ms, 3},
		{"again in the window after that", 7_300_000, 700e3, sec + 700*ms - 2*period, sec - 2*ms + 700*ms - period, 3},
	} {
		ans := leaseOfNext()
		ans.RedisNow, ans.Ends = tc.redisNow, tc.ends
		a, lost := aheadOf(c, ans)
		if lost != 0 || a.Held() != 0 || a.Leased() != 3 {
			t.Errorf("%s: %d units lost, %d in hand, %d leased", tc.name, lost, a.Held(), a.Leased())
		}
		if got := a.ahead; got.units != 3 || a.askedAhead != 6 || got.begin != tc.begin || got.end != tc.end-2*c.Tick {
			t.Errorf("%s: %+v, want a lease of window 6 from %d to %d", tc.name, got, tc.begin, tc.end-2*c.Tick)
		}
		if lost := a.open(sec); lost != tc.lost {
			t.Errorf("%s: %d units lost at once, want %d", tc.name, lost, tc.lost)
		}
	}
}

// If Redis's clock stepped back, an answer may have a lease of a window of which the process has one. Then the first is lost.
func TestSecondLeaseOfNextWindowReplacesTheFirst(t *testing.T) {
	c := windowTerms()
	a, _ := aheadOf(c, leaseOfNext())
	a.frozen = true
	ans := leaseOfNext()
	ans.Lease = 2
	if _, lost := a.settle(c, ans, nil, sec); lost != 3 || a.ahead.units != 2 {
		t.Errorf("%d units lost and %d leased, want 3 and 2", lost, a.ahead.units)
	}
}

func TestOpenLeaseOfNextWindow(t *testing.T) {
	c := windowTerms()
	first, _ := aheadOf(c, leaseOfNext())
	begin, end := first.ahead.begin, first.ahead.end
	for _, tc := range []struct {
		name             string
		now              int64
		held, kept, lost int64
	}{
		{"before its begin", begin - 1, 0, 3, 0},
		{"at its begin", begin, 3, 0, 0},
		{"before its end", end - 1, 3, 0, 0},
		{"at its end", end, 0, 0, 3},
	} {
		a := *first
		a.Return()
		_, lost := a.Begin(0, tc.now)
		if a.leaving != (tc.held+tc.kept > 0) {
			t.Errorf("%s: the key is to return units: %t", tc.name, a.leaving)
		}
		a.leaving = false
		if a.Held() != tc.held || a.ahead.units != tc.kept || lost != tc.lost {
			t.Errorf("%s: %d in hand, %d of the next window, %d lost; want %d, %d, %d", tc.name, a.Held(), a.ahead.units, lost, tc.held, tc.kept, tc.lost)
		}
		if tc.held == 0 {
			continue
		}
		if l := a.leases[0]; l.end != end || l.window != 6 || l.booked {
			t.Errorf("%s: %+v", tc.name, l)
		}
		if h := a.here(tc.now); h != (place{6, end}) {
			t.Errorf("%s: the process takes its window to be %+v", tc.name, h)
		}
		if v := a.Call(c, 3, tc.now); v.Action != Admit || v.Source != hybridlimit.SourceLease {
			t.Errorf("%s: a call for all of it: %+v", tc.name, v)
		}
		if _, lost := a.Begin(a.budget.Units, end); a.Held() != 0 || lost != 0 {
			t.Errorf("%s: %d in hand after its end, %d lost", tc.name, a.Held(), lost)
		}
	}
}

// Another limit counts by other windows, so units of the next window of the old limit must not be spent.
func TestAnotherLimitVoidsLeaseOfNextWindow(t *testing.T) {
	c := windowTerms()
	old := NewPlan(c.Limit)
	for _, l := range []hybridlimit.Limit{
		hybridlimit.FixedWindow(20, time.Second), hybridlimit.FixedWindow(10, 2*time.Second), hybridlimit.SlidingWindow(10, time.Second),
	} {
		a, _ := aheadOf(c, leaseOfNext())
		begin := a.ahead.begin
		if lost := a.Adapt(old, NewPlan(l), sec); lost != 3 || a.ahead != (ahead{}) || a.Leased() != 0 {
			t.Errorf("%v: %d units lost, %d leased", l, lost, a.Leased())
		}
		if a.Begin(0, begin); a.Held() != 0 || a.MustReturn() != 0 {
			t.Errorf("%v: %d in hand in the next window, %d to be returned", l, a.Held(), a.MustReturn())
		}
	}
	a, _ := aheadOf(c, leaseOfNext())
	if lost := a.Adapt(old, NewPlan(c.Limit), sec); lost != 0 || a.ahead.units != 3 {
		t.Errorf("the same limit: %d units lost, %d kept", lost, a.ahead.units)
	}
}

// A lowered limit of the same windows gives back what is leased, each unit to its window, unless the count of this window was cut.
func TestLoweredLimitGivesLeasesBack(t *testing.T) {
	for rate, lost := range map[int64]int64{5: 0, 4: 2} { // of 10
		c := windowTerms()
		a, _ := aheadOf(c, leaseOfNext())
		ahead, here := a.askedAhead, a.askedAhead-1
		a.leases[0] = lease{units: 2, end: a.ahead.end, window: here}
		if got := a.Adapt(NewPlan(c.Limit), NewPlan(hybridlimit.FixedWindow(rate, time.Second)), sec); got != lost || a.Leased() != 0 {
			t.Errorf("%d a second: %d units lost, want %d; %d leased", rate, got, lost, a.Leased())
		}
		want := []refund{{2, here}, {3, ahead}}
		if lost > 0 {
			want = []refund{{3, ahead}, {}}
		}
		if got := []refund{a.refunds.take(), a.refunds.take()}; !slices.Equal(got, want) {
			t.Errorf("%d a second: given back %+v, want %+v", rate, got, want)
		}
	}
}

// An answer that comes after the limit has changed leases nothing of the next window of the old limit.
func TestLeaseOfNextWindowUnderTheOldLimitIsLost(t *testing.T) {
	c := windowTerms()
	old, p := NewPlan(c.Limit), NewPlan(hybridlimit.FixedWindow(20, time.Second))
	c.Bucket, c.Window, c.Limit = p.Bucket, p.Window, p.Limit
	a := &Account{frozen: true}
	if _, _, b := a.Receive(c, p, &Waiters{sent: old}, leaseOfNext(), sec); b.Lost != 3 || b.Debited != 3 || a.Leased() != 0 {
		t.Errorf("lost %d of %d debited units, %d leased", b.Lost, b.Debited, a.Leased())
	}
}

// A key that is left returns the units of this window first. The units of the next one need an op of their own, because an op
// names one window.
func TestReturnNamesTheWindow(t *testing.T) {
	for _, closing := range []bool{false, true} {
		c := windowTerms()
		a, _ := aheadOf(c, leaseOfNext())
		a.keep(lease{units: 2, end: a.view.ends, window: 5})
		if a.MustReturn() != 5 || a.Forgettable(false) {
			t.Fatalf("%d units must be returned; forgettable: %t", a.MustReturn(), a.Forgettable(false))
		}
		if c.Closing = closing; !closing {
			a.Return()
		}
		for i, want := range []algo.Op{{Back: 2, Gen: 5}, {Back: 3, Gen: 6}} {
			if at := a.LookAt(c, sec); !closing && at != sec {
				t.Errorf("op %d is due at %d", i, at)
			}
			op, ok := a.freeze(c, nil, sec)
			if !ok || op.Back != want.Back || op.Gen != want.Gen || op.Ahead || op.Demand != 0 {
				t.Fatalf("op %d: %+v, want %d units of window %d", i, op, want.Back, want.Gen)
			}
			ans := leaseOfNext()
			ans.Lease, ans.Gen = 0, 0
			if taken, late := a.takenBack(ans); taken != want.Back || late != 0 {
				t.Errorf("op %d: %d units taken back, %d late", i, taken, late)
			}
			a.settle(c, ans, nil, sec)
		}
		if op, ok := a.freeze(c, nil, sec); ok || a.Leased() != 0 || !a.Forgettable(false) {
			t.Errorf("then %+v is sent; %d units leased", op, a.Leased())
		}
	}
}

// All processes of a fleet would ask at once if the time did not depend on the process.
func TestAheadAtIsInTheLastQuarter(t *testing.T) {
	for _, period := range []time.Duration{100 * time.Millisecond, time.Second, 7 * time.Second, time.Hour} {
		c := windowTerms()
		p := NewPlan(hybridlimit.FixedWindow(1000, period))
		c.Bucket, c.Window, c.Limit = p.Bucket, p.Window, p.Limit
		times := map[int64]bool{}
		span := min(int64(period)/4, sec)
		for redisAt := range int64(2000) {
			a := inWindow(c, 5*c.Window.Period+redisAt, 10, c.Window.Period-redisAt)
			a.busy(50, sec)
			at := a.aheadAt(c, sec)
			if at < a.view.ends-span || at >= a.view.ends-span/4 {
				t.Fatalf("%v: %d ns before the end of the window, want less than %d and more than %d", period, a.view.ends-at, span, span/4)
			}
			times[at-a.view.ends] = true
			if got := a.LookAt(c, sec); got != at {
				t.Fatalf("%v: looks at %d, want %d", period, got, at)
			}
			a.demand = demand{}
			a.busy(50, at)
			if late := at + ms/2; a.LookAt(c, late) != late || !a.wantsAhead(c, late) || a.wantsAhead(c, at-1) {
				t.Fatalf("%v: at %d, the process looks at %d; asks: %t; 1 ns before the time: %t",
					period, late, a.LookAt(c, late), a.wantsAhead(c, late), a.wantsAhead(c, at-1))
			}
		}
		if most := int(min(span*3/4/ms, 1009)); len(times) < most*9/10 { // whole ms
			t.Errorf("%v: processes that heard of Redis at 2000 times ask at %d times", period, len(times))
		}
	}
}

func TestAheadAtNeedsAReason(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*Account, *Conditions)
		asks  bool
	}{
		{"a steady demand", func(*Account, *Conditions) {}, true},
		{"no demand", func(a *Account, _ *Conditions) { a.demand = demand{} }, false},
		{"a demand that is over", func(a *Account, _ *Conditions) {
			a.demand.at, a.demand.young = a.demand.at-10*sec, 0
		}, false},
		{"less than two units a window", func(a *Account, _ *Conditions) { a.demand = demand{}; a.busy(1, sec) }, false},
		{"a sync is in flight", func(a *Account, _ *Conditions) { a.frozen = true }, false},
		{"Redis is away", func(_ *Account, c *Conditions) { c.Broken = true }, false},
		{"the mode has no leases", func(_ *Account, c *Conditions) { c.Mode = ModeDeferred }, false},
		{"the limiter closes", func(_ *Account, c *Conditions) { c.Closing = true }, false},
		{"a short window", func(_ *Account, c *Conditions) { c.Window.Period = algo.AheadPeriod - 1 }, false},
		{"a bucket", func(_ *Account, c *Conditions) { c.Window = algo.Window{} }, false},
		{"no view", func(a *Account, _ *Conditions) { a.view = view{} }, false},
		{"it has asked", func(a *Account, _ *Conditions) { a.askedAhead = 6 }, false},
		{"it asked in the last window", func(a *Account, _ *Conditions) { a.askedAhead = 5 }, true},
	} {
		c := windowTerms()
		a := inWindow(c, 5_500_000, 10, 500e3)
		a.busy(100, sec)
		tc.alter(a, c)
		if at := a.aheadAt(c, sec); (at != 0) != tc.asks {
			t.Errorf("%s: asks at %d, want %t", tc.name, at, tc.asks)
		}
	}
}

// A process that lives on a lease of this window from before asks for the next one in its last quarter too, although it has no
// view of this window.
func TestAheadAtWithoutAView(t *testing.T) {
	c := windowTerms()
	a, _ := aheadOf(c, leaseOfNext())
	end := a.ahead.end
	a.busy(100, sec)
	for _, now := range []int64{sec, a.ahead.begin, a.ahead.begin + 100*ms} {
		a.Begin(0, now)
		if at := a.aheadAt(c, now); at < end-sec/4 || at >= end {
			t.Errorf("at %d: asks at %d, the lease ends at %d", now, at, end)
		}
	}
	now := end - 1
	op, ok := a.freeze(c, nil, now)
	if !ok || !op.Ahead || op.Back != 0 || op.Demand == 0 || a.askedAhead != 7 {
		t.Errorf("%+v, sent: %t; asked for window %d", op, ok, a.askedAhead)
	}
}

// The answer with the lease took most of a window. So the lease ends early in its window, and the last quarter before that has
// begun. An ask in the window before would be for the same lease again, at once and without an end.
func TestAheadAtAfterALateAnswer(t *testing.T) {
	c := windowTerms()
	ans := leaseOfNext()
	ans.Sent = sec - 980*ms
	a, _ := aheadOf(c, ans)
	a.busy(100, sec)
	if a.ahead.end-sec/4 >= sec || a.ahead.begin <= sec {
		t.Fatalf("the lease is %+v", a.ahead)
	}
	if at := a.aheadAt(c, sec); at != a.ahead.begin {
		t.Errorf("asks at %d, the lease begins at %d", at, a.ahead.begin)
	}
	if op, ok := a.freeze(c, nil, sec); ok {
		t.Errorf("sends %+v", op)
	}
}

// Redis may need a view for the leases that it tells of the next window, although nothing is used in this one.
func TestTellsLeasesOfTheNextWindow(t *testing.T) {
	c := windowTerms()
	a, _ := aheadOf(c, leaseOfNext())
	a.view.createdAt = 1
	if a.view.level != c.Bucket.Cap || a.nextTold(c) != 3 || !a.Tells(c.Bucket, sec) {
		t.Errorf("level %d of %d, %d units of the next window: tells %t", a.view.level, c.Bucket.Cap, a.nextTold(c), a.Tells(c.Bucket, sec))
	}
}

// With the ask for units of the next sliding window, the process returns the units of this one that it will hardly need. The
// two windows share a limit, so each of these units would be refused to the next window. A fixed window has its own limit.
func TestSpareGoesBackWithTheAskForTheNextWindow(t *testing.T) {
	sliding := windowTerms()
	p := NewPlan(hybridlimit.SlidingWindow(1000, time.Second))
	sliding.Bucket, sliding.Window, sliding.Limit = p.Bucket, p.Window, p.Limit
	fixed := windowTerms()
	p = NewPlan(hybridlimit.FixedWindow(1000, time.Second))
	fixed.Bucket, fixed.Window, fixed.Limit = p.Bucket, p.Window, p.Limit
	for _, tc := range []struct {
		name string
		c    *Conditions
		held int64
		back int64
	}{
		// 100 units a second for 50 ms: 5 and a standard deviation of 2.2 are kept.
		{"more than the rest needs", sliding, 20, 12},
		{"as many as the rest needs", sliding, 8, 0},
		{"fewer", sliding, 3, 0},
		{"of a fixed window", fixed, 20, 0},
	} {
		a := inWindow(tc.c, 5_500_000, tc.c.Bucket.Cap/2, 500e3)
		now := a.view.ends - 50*ms
		a.busy(100, now)
		a.keep(lease{units: tc.held, end: a.view.ends, window: 5})
		op, ok := a.freeze(tc.c, nil, now)
		if !ok || !op.Ahead || op.Demand == 0 || op.Div == 0 || a.askedAhead != 6 {
			t.Errorf("%s: %+v, sent: %t; asked for window %d", tc.name, op, ok, a.askedAhead)
		}
		if op.Back != tc.back || op.Back > 0 && op.Gen != 5 || a.Held() != tc.held-tc.back {
			t.Errorf("%s: %d units of window %d go back, %d stay; want %d of window 5", tc.name, op.Back, op.Gen, a.Held(), tc.back)
		}
	}
}

// A key that is left leases nothing of the next window with its last return.
func TestLeavingAKeyLeasesNothingAhead(t *testing.T) {
	for _, closing := range []bool{false, true} {
		c := windowTerms()
		a := inWindow(c, 5_500_000, 10, 500e3)
		a.busy(100, sec)
		a.keep(lease{units: 3, end: a.view.ends, window: 5})
		if c.Closing = closing; !closing {
			a.Return()
		}
		if op, ok := a.freeze(c, nil, a.view.ends-1); !ok || op.Back != 3 || op.Ahead || op.Demand != 0 {
			t.Errorf("closing %t: %+v, sent: %t", closing, op, ok)
		}
	}
}
