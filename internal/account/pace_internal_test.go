package account

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// leasedForNext returns an account with n units of a window of 2 s, and the time (ns) at which that began.
func leasedForNext(c *Conditions, n int64) (a *Account, begin int64) {
	p := NewPlan(hybridlimit.FixedWindow(400, 2*time.Second))
	c.Bucket, c.Window, c.Limit = p.Bucket, p.Window, p.Limit
	a = &Account{frozen: true, askedAhead: 6}
	a.busy(n/2, sec)
	ans := Answer{Answer: algo.Answer{Cap: 400 - n, Level: 10, Lease: n, Gen: 6, Ends: 200e3}, RedisNow: 11_800_000, Sent: sec - 2*ms}
	a.settle(c, ans, nil, sec)
	return a, sec + 200*ms
}

// TestPace lets a process that leased 100 units of the next window have calls at a steady pace. If the pace is that of its lease, or a
// little less, it returns none. Otherwise it returns most of what it will not use, in the first half of the window.
func TestPace(t *testing.T) {
	for _, tc := range []struct {
		name        string
		every       int64 // ns between two calls
		least, most int64 // units that go back until the middle of the window
	}{
		{"as before", 20 * ms, 0, 0},
		{"three quarters", 27 * ms, 0, 0},
		{"a half", 40 * ms, 15, 50},
		{"a quarter", 80 * ms, 45, 75},
		{"a tenth", 200 * ms, 65, 100},
		{"none", 10 * sec, 100, 100},
	} {
		c := windowTerms()
		a, begin := leasedForNext(c, 100)
		if at := a.LookAt(c, sec); at != begin {
			t.Fatalf("%s: the first look is %d ms after the begin of the window", tc.name, (at-begin)/ms)
		}
		var back, looks int64
		now, call, end := begin, begin+tc.every, begin+sec
		for {
			look := a.LookAt(c, now)
			if now = min(call, look); now >= end || look == 0 {
				break
			}
			a.Begin(a.budget.Units, now)
			if now == call {
				if v := a.Call(c, 1, now); v.Action != Admit {
					t.Fatalf("%s: a call is %+v", tc.name, v)
				}
				call += tc.every
			} else if op, ok := a.freeze(c, nil, now); ok {
				if op.Back == 0 || op.Gen != 6 || op.Demand > 0 || len(op.Asks) > 0 {
					t.Fatalf("%s: %+v", tc.name, op)
				}
				back += op.Back
				a.settle(c, Answer{Answer: algo.Answer{Level: 100 + back, Cap: 400, Ends: (begin + 2*sec - now) / 1000}, RedisNow: 12_000_000 + (now-begin)/1000, Sent: now}, nil, now)
			}
			if looks++; looks > 200 {
				t.Fatalf("%s: %d events", tc.name, looks)
			}
			a.Load(c, now)
		}
		if back < tc.least || back > tc.most {
			t.Errorf("%s: %d units go back, want %d to %d", tc.name, back, tc.least, tc.most)
		}
	}
}

// TestWant checks that a process returns units of a long window at once if another one wants them and it does not use them, and that
// it keeps them while it uses them, or if they are not wanted.
func TestWant(t *testing.T) {
	for _, sliding := range []bool{false, true} {
		for name, used := range map[string]int64{"idle": 0, "used now and then": 2 * sec, "used just now": 100 * ms} {
			c := windowTerms()
			limit := hybridlimit.FixedWindow(1000, time.Hour)
			if sliding {
				limit = hybridlimit.SlidingWindow(1000, time.Hour)
			}
			p := NewPlan(limit)
			c.Bucket, c.Window, c.Limit = p.Bucket, p.Window, p.Limit
			a := inWindow(c, 7_200_000_000+600_000_000, c.Bucket.Cap/2, 3000e6)
			a.keep(lease{units: 20, end: a.view.ends, window: a.view.window})
			a.watch(c, 20, true, sec)
			now := sec + 10*sec
			if used > 0 {
				a.use(1, now-used)
			}
			held := a.Held()
			if op, ok := a.freeze(c, nil, now); ok {
				t.Errorf("%s: %d units go back that are not wanted", name, op.Back)
			}
			a.Want(c, now)
			if at := a.LookAt(c, now); at != now {
				t.Errorf("%s: the look is %d ms later", name, (at-now)/ms)
			}
			op, ok := a.freeze(c, nil, now)
			if used == 100*ms {
				if ok || a.lookBy != now-used+looksMost {
					t.Fatalf("%s: %d units go back, and the next look is %d ms later", name, op.Back, (a.lookBy-now)/ms)
				}
				now = a.lookBy
				op, ok = a.freeze(c, nil, now)
			}
			if !ok || op.Back != held || op.Gen != a.view.window || a.Held() != 0 {
				t.Errorf("%s: %+v, sent: %t; %d units stay", name, op, ok, a.Held())
			}
		}
	}
	for name, c := range map[string]*Conditions{"a bucket": stepTerms(), "a key that holds nothing": windowTerms()} {
		var a Account
		if a.Want(c, sec); a != (Account{}) {
			t.Errorf("%s has units to return: %+v", name, a)
		}
	}
}

// TestWanting checks which answers are told to the other processes.
func TestWanting(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *Conditions)
		level  int64 // units
		want   bool
	}{
		"used up":            {func(*Conditions) {}, 0, true},
		"a unit is left":     {func(*Conditions) {}, 1, false},
		"alone":              {func(c *Conditions) { c.N = 1 }, 0, false},
		"without leases":     {func(c *Conditions) { c.Mode = ModeDeferred }, 0, false},
		"over before others": {func(c *Conditions) { c.Window = algo.WindowOf(hybridlimit.FixedWindow(10, time.Second)) }, 0, false},
	} {
		c := windowTerms()
		p := NewPlan(hybridlimit.FixedWindow(10, time.Minute))
		c.Bucket, c.Window, c.Limit, c.N, c.Mode = p.Bucket, p.Window, p.Limit, 3, ModeAuto
		tc.change(c)
		a := inWindow(c, 60e6, tc.level, 30e6)
		if got := a.Wanting(c); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
		want := c.RelookIn
		if tc.level == 0 && c.N > 1 {
			want = relookWindow
		}
		if wait := a.view.relook - sec; wait != want {
			t.Errorf("%s: it asks again after %d ms, want %d", name, wait/ms, want/ms)
		}
	}
}

// TestUnwanted checks that units of a long window without a refusal go back after half of the window without a use, also near
// its end, if the window may run out.
func TestUnwanted(t *testing.T) {
	for _, tc := range []struct {
		name         string
		level        int64 // of 1000 units, in the first tenth of the window
		unused, rest time.Duration
		want         bool
	}{
		{"unused for most of it", 500, 35 * time.Minute, 20 * time.Minute, true},
		{"plenty is left", 950, 35 * time.Minute, 20 * time.Minute, false},
		{"used a while ago", 500, 25 * time.Minute, 20 * time.Minute, false},
	} {
		c := windowTerms()
		p := NewPlan(hybridlimit.FixedWindow(1000, time.Hour))
		c.Bucket, c.Window, c.Limit = p.Bucket, p.Window, p.Limit
		a := inWindow(c, 7_200_000_000+300_000_000, tc.level*c.Bucket.Unit, 3300e6)
		a.keep(lease{units: 20, end: a.view.ends, window: a.view.window})
		a.watch(c, 20, true, sec)
		now := a.view.ends - int64(tc.rest)
		a.spentAt, a.lookBy = now-int64(tc.unused), now
		if op, ok := a.freeze(c, nil, now); ok != tc.want || ok && op.Back != 20 {
			t.Errorf("%s: %d units go back, sent: %t", tc.name, op.Back, ok)
		}
	}
}
