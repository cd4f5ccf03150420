package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// flip calls SetSwitch, which must not fail.
func flip(t *testing.T, l *hybrid.Limiter, s hybrid.Switch) {
	t.Helper()
	if err := l.SetSwitch(s); err != nil {
		t.Fatal(err)
	}
}

func flipFleet(t *testing.T, l *hybrid.Limiter, s hybrid.Switch) {
	t.Helper()
	if err := l.SetFleetSwitch(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func TestSwitchText(t *testing.T) {
	var names []string
	for s := hybrid.SwitchNormal; s <= hybrid.SwitchDenyAll; s++ {
		names = append(names, s.String())
		if got, err := hybrid.ParseSwitch(s.String()); got != s || err != nil {
			t.Errorf("%v read back as %v, %v", s, got, err)
		}
	}
	// The gauge and Redis use the numbers of this order.
	if got := strings.Join(names, " "); got != "normal shadow local_only allow_all deny_all" {
		t.Errorf("switches: %s", got)
	}
	if got := hybrid.Switch(9).String(); got != "Switch(9)" {
		t.Errorf("beyond the last: %s", got)
	}
	for _, bad := range []string{"", "Normal", "allow all", "0"} {
		if s, err := hybrid.ParseSwitch(bad); !errors.Is(err, hybridlimit.ErrInvalid) || s != hybrid.SwitchNormal || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("%q: %v, %v", bad, s, err)
		}
	}
}

// TestSwitchTakesEffectAtOnce checks that a switch, and its removal, take effect with the next
// call, also for a key with a budget for the fast path.
func TestSwitchTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(1000, time.Second, 2000), hybrid.Config{})
		time.Sleep(2100 * time.Millisecond)
		warm := func() {
			t.Helper()
			for range 100 {
				ask(t, l, "k", 1)
				time.Sleep(time.Millisecond)
			}
		}
		for _, c := range []struct {
			to      hybrid.Switch
			source  hybridlimit.Source
			allowed bool
		}{
			{hybrid.SwitchDenyAll, hybridlimit.SourceSwitch, false},
			{hybrid.SwitchAllowAll, hybridlimit.SourceSwitch, true},
			{hybrid.SwitchDenyAll, hybridlimit.SourceSwitch, false},
			{hybrid.SwitchShadow, hybridlimit.SourceLease, true},
			{hybrid.SwitchNormal, hybridlimit.SourceLease, true},
		} {
			warm()
			if c.to == hybrid.SwitchShadow { // so that a lease is there at once
				flip(t, l, hybrid.SwitchNormal)
				warm()
			}
			flip(t, l, c.to)
			res := ask(t, l, "k", 1)
			if res.Source != c.source || res.Allowed != c.allowed || res.Shadowed || res.Granted != map[bool]int64{true: 1}[c.allowed] || res.Policy != "api" || res.Limit != 2000 {
				t.Errorf("%v: %+v", c.to, res)
			}
			if !c.allowed && res.RetryAfter != time.Second || c.allowed && res.RetryAfter != 0 {
				t.Errorf("%v: retry after %v", c.to, res.RetryAfter)
			}
			if s, own := l.Switch(); s != c.to || !own || l.Stats().Switch != c.to {
				t.Errorf("%v, %v in force; Stats say %v; want %v", s, own, l.Stats().Switch, c.to)
			}
		}
		l.ClearSwitch()
		if s, own := l.Switch(); s != hybrid.SwitchNormal || own {
			t.Errorf("cleared: %v, %v", s, own)
		}
		if err := l.SetSwitch(17); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Switch (Switch(17)) is not a switch") {
			t.Errorf("no switch: %v", err)
		}
		l.Close()
		if err := l.SetSwitch(hybrid.SwitchDenyAll); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if err := l.SetFleetSwitch(t.Context(), hybrid.SwitchDenyAll); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		l.ClearSwitch() // harmless
	})
}

// TestSwitchedVerbs checks that SwitchAllowAll and SwitchDenyAll answer every verb that decides.
// They count the decisions and no units, and tell Redis nothing.
func TestSwitchedVerbs(t *testing.T) {
	for _, to := range []hybrid.Switch{hybrid.SwitchAllowAll, hybrid.SwitchDenyAll} {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeExact} {
			t.Run(fmt.Sprint(to, mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, rdb := t.Context(), redistest.NewBubble(t).Client(nil)
					l := newLimiter(t, rdb, still(5), hybrid.Config{Mode: mode, Shadow: true})
					time.Sleep(2100 * time.Millisecond)
					ask(t, l, "k", 1)
					time.Sleep(time.Second)
					flip(t, l, to)
					before, allowed := l.Stats(), to == hybrid.SwitchAllowAll
					check := func(verb string, n int64, res hybridlimit.Result, err error) {
						t.Helper()
						if !allowed {
							n = 0
						}
						if err != nil || res.Source != hybridlimit.SourceSwitch || res.Allowed != allowed || res.Granted != n || res.Shadowed {
							t.Errorf("%s: %+v, %v", verb, res, err)
						}
					}
					decisions := int64(0)
					decide := func(verb string, n int64, res hybridlimit.Result, err error) {
						t.Helper()
						decisions++
						check(verb, n, res, err)
					}
					res, err := l.Allow(ctx, "k")
					decide("Allow", 1, res, err)
					res, err = l.AllowN(ctx, "new", 1000) // above the burst
					decide("AllowN", 1000, res, err)
					res, err = l.AllowAtMost(ctx, "k", 7)
					decide("AllowAtMost", 7, res, err)
					res, err = l.AllowLimit(ctx, "k", 3, still(9))
					decide("AllowLimit", 3, res, err)
					res, err = l.Handle("k").AllowN(ctx, 2)
					decide("Bucket.AllowN", 2, res, err)
					res, err = hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: l, Key: "k", N: 2})
					decide("AllowAll", 2, res, err)
					r, err := l.Reserve(ctx, "k", 3)
					decide("Reserve", 3, r.Result, err)
					if err := r.Cancel(ctx); err != nil && allowed {
						t.Errorf("Cancel: %v", err)
					}
					short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
					res, err = l.Wait(short, "k", 2)
					decisions++
					if allowed {
						check("Wait", 2, res, err)
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Wait: %+v, %v", res, err)
					}
					cancel()
					res, err = l.Peek(ctx, "k")
					check("Peek", 0, res, err)
					if allowed { // nothing was counted, so there is nothing to charge or give back
						res, err = l.Charge(ctx, "k", 3)
						check("Charge", 3, res, err)
						res, err = l.Refund(ctx, "k", 1)
						check("Refund", 0, res, err)
					}
					if _, err := l.Allow(ctx, ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
						t.Errorf("bad input: %v", err)
					}
					time.Sleep(time.Second)
					s := l.Stats()
					got := s.Denied[hybridlimit.SourceSwitch]
					if allowed {
						got = s.Allowed[hybridlimit.SourceSwitch]
					}
					if got != decisions || s.Decisions()-before.Decisions() != decisions || s.Admitted != before.Admitted || s.Ops != before.Ops {
						t.Errorf("%d decisions; before %+v, after %+v", decisions, before, s)
					}
					l.ClearSwitch()
					shutdown(t, l)
					if n := debited(t, rdb, "api", "k", "new"); n != 1 || balance(t, l.Stats()) != 1 {
						t.Errorf("Redis debited %d of 1: %+v", n, l.Stats())
					}
				})
			})
		}
	}
}

// TestSwitchShadow checks that SwitchShadow denies no call and counts, as Config.Shadow does.
// Result.Shadowed reports the denial that would have been.
func TestSwitchShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.NewBubble(t).Client(nil)
		l := newLimiter(t, rdb, still(5), hybrid.Config{})
		flip(t, l, hybrid.SwitchShadow)
		for i := range 20 {
			res := ask(t, l, "k", 1)
			if !res.Allowed || res.Granted != 1 || res.RetryAfter != 0 || res.Shadowed != (i >= 5) {
				t.Errorf("call %d: %+v", i, res)
			}
		}
		flip(t, l, hybrid.SwitchNormal)
		if res := ask(t, l, "k", 1); res.Allowed {
			t.Errorf("back to normal: %+v", res)
		}
		shutdown(t, l)
		if got := debited(t, rdb, "api", "k"); got != 5 || balance(t, l.Stats()) != 5 {
			t.Errorf("Redis debited %d, want 5", got)
		}
	})
}

// opsOf returns the number of ops of the limiters' hubs.
func opsOf(ls ...*hybrid.Limiter) (ops uint64) {
	for _, l := range ls {
		ops += l.Hub().Stats().Ops
	}
	return ops
}

// TestSwitchLocalOnly checks that SwitchLocalOnly decides by the process's share, which starts
// from the last known state. Redis is told nothing until the switch is taken back. Then it is
// told every unit.
func TestSwitchLocalOnly(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				rdb := b.Client(nil)
				var ls []*hybrid.Limiter
				for range 2 {
					ls = append(ls, newLimiter(t, b.Client(nil), still(100), hybrid.Config{Mode: mode}))
				}
				l := ls[0]
				time.Sleep(3 * time.Second)
				for range 40 {
					ask(t, l, "k", 1)
				}
				time.Sleep(6 * time.Second) // leases have expired, Redis knows all
				spent := debited(t, rdb, "api", "k")
				flip(t, l, hybrid.SwitchLocalOnly)
				before, alive := opsOf(ls...), l.Hub().Stats().Messages
				var got int64
				for range 200 {
					began := time.Now()
					res := ask(t, l, "k", 1)
					got += res.Granted
					if res.Source != hybridlimit.SourceFallback && res.Source != hybridlimit.SourceLease || time.Since(began) > 0 {
						t.Fatalf("after %v: %+v", time.Since(began), res)
					}
				}
				time.Sleep(10 * time.Second)
				// Half of the units that Redis had at its last answer.
				most := (100 - spent + 1) / 2
				if got < most-5 || got > most {
					t.Errorf("%d units were admitted, with %d spent of 100 before", got, spent)
				}
				if ops := opsOf(ls...); ops != before {
					t.Errorf("%d ops while Redis was not to be asked", ops-before)
				}
				if beats := l.Hub().Stats().Messages - alive; beats < 9 || beats > 11 {
					t.Errorf("%d messages in 10 s, want the heartbeats", beats)
				}
				if s := l.Stats(); s.Owed != got || s.Fleet != 2 {
					t.Errorf("%d admitted: %+v", got, s)
				}
				l.ClearSwitch()
				time.Sleep(1500 * time.Millisecond)
				if s := l.Stats(); s.Owed != 0 || s.Forgiven != 0 {
					t.Errorf("1.5 s after it was taken back: %+v", s)
				}
				if now := debited(t, rdb, "api", "k"); now != spent+got {
					t.Errorf("Redis debited %d, want %d and %d", now, spent, got)
				}
				if res := ask(t, ls[1], "k", max(1, 100-spent-got+1)); res.Allowed {
					t.Errorf("another process was admitted for more units than are left: %+v", res)
				}
				shutdown(t, ls...)
				if n := debited(t, rdb, "api", "k"); n != balance(t, ls[0].Stats())+balance(t, ls[1].Stats()) {
					t.Errorf("Redis debited %d", n)
				}
			})
		})
	}
}

// TestSwitchLocalOnlyForgivesWhatRefilled checks that units that refilled before the end of
// SwitchLocalOnly are forgiven, as after an outage. A key without further calls is settled too.
func TestSwitchLocalOnlyForgivesWhatRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb := b.Client(nil)
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(10, time.Second, 100), hybrid.Config{})
		time.Sleep(2 * time.Second)
		flip(t, l, hybrid.SwitchLocalOnly)
		var got int64
		for range 50 {
			got += ask(t, l, "k", 1).Granted
		}
		time.Sleep(3 * time.Second)
		l.ClearSwitch()
		time.Sleep(1500 * time.Millisecond)
		s := l.Stats()
		if got != 50 || s.Owed != 0 || s.Forgiven < 30 || s.Forgiven > 40 || debited(t, rdb, "api", "k") != balance(t, s) {
			t.Errorf("of %d units %d were forgiven: %+v", got, s.Forgiven, s)
		}
	})
}

// TestSwitchLocalOnlyShutdownPays checks that Shutdown pays the units that SwitchLocalOnly left
// owed, because no later sync does.
func TestSwitchLocalOnlyShutdownPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb := b.Client(nil)
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{})
		time.Sleep(2 * time.Second)
		flip(t, l, hybrid.SwitchLocalOnly)
		ask(t, l, "k", 7)
		if err := l.Reset(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("Reset: %v", err)
		}
		must(t)(l.Charge(t.Context(), "k", 3))
		shutdown(t, l)
		if n := debited(t, rdb, "api", "k"); n != 10 || balance(t, l.Stats()) != 10 {
			t.Errorf("Redis debited %d, want 10: %+v", n, l.Stats())
		}
	})
}

// TestSwitchIsCheap checks that SwitchAllowAll and SwitchDenyAll are local: they make no entries
// and allocate nothing.
func TestSwitchIsCheap(t *testing.T) {
	srvless := redistest.Client(t, "127.0.0.1:1", oneDial)
	l := newLimiter(t, srvless, still(100), hybrid.Config{})
	for _, to := range []hybrid.Switch{hybrid.SwitchAllowAll, hybrid.SwitchDenyAll} {
		flip(t, l, to)
		ctx := context.Background()
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := l.Allow(ctx, "k"); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", to, n)
		}
	}
	if s := l.Stats(); s.Keys != 0 {
		t.Errorf("%d keys in memory", s.Keys)
	}
}

// TestMemoryHasRoomWithoutRedis checks that a key whose share is full again can be forgotten
// under SwitchLocalOnly, as in an outage. So a memory full of such keys has room for others.
func TestMemoryHasRoomWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(10, time.Second, 10), hybrid.Config{MaxKeys: 50})
		time.Sleep(2 * time.Second)
		flip(t, l, hybrid.SwitchLocalOnly)
		var got int64
		for i := range 1000 { // 50 new keys a second, and each is full again after 0.1 s
			got += ask(t, l, fmt.Sprint("k", i), 1).Granted
			time.Sleep(20 * time.Millisecond)
		}
		if s := l.Stats(); got != 1000 || s.Overflow != 0 || s.Keys > 50 {
			t.Errorf("%d of 1000 new keys were admitted: %+v", got, s)
		}
		l.ClearSwitch()
		shutdown(t, l)
		balance(t, l.Stats())
	})
}
