package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestFleetSwitch checks that the fleet's switch reaches all processes with
// their next heartbeat, that Redis keeps it, and that a process's own switch
// wins.
func TestFleetSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var ls []*hybrid.Limiter
		for range 3 {
			ls = append(ls, newLimiter(t, b.Client(nil), still(100), hybrid.Config{}))
		}
		all := func(when string, want ...hybrid.Switch) {
			t.Helper()
			for i, l := range ls {
				if s, _ := l.Switch(); s != want[min(i, len(want)-1)] {
					t.Errorf("%s: process %d has %v, want %v", when, i, s, want)
				}
			}
		}
		time.Sleep(2500 * time.Millisecond) // between two heartbeats
		messages := ls[1].Hub().Stats().Messages
		time.Sleep(10 * time.Second)
		idle := ls[1].Hub().Stats().Messages - messages

		flipFleet(t, ls[0], hybrid.SwitchDenyAll)
		if s, own := ls[0].Switch(); s != hybrid.SwitchDenyAll || own {
			t.Errorf("the process that set it: %v, %v", s, own)
		}
		time.Sleep(time.Second)
		all("set", hybrid.SwitchDenyAll)
		if res := ask(t, ls[2], "k", 1); res.Allowed || res.Source != hybridlimit.SourceSwitch {
			t.Errorf("%+v", res)
		}
		messages = ls[1].Hub().Stats().Messages
		time.Sleep(10 * time.Second)
		if n := ls[1].Hub().Stats().Messages - messages; n != idle {
			t.Errorf("%d messages in 10 s with a switch, %d without", n, idle)
		}

		flip(t, ls[1], hybrid.SwitchNormal)
		all("own switch", hybrid.SwitchDenyAll, hybrid.SwitchNormal, hybrid.SwitchDenyAll)
		time.Sleep(5 * time.Second)
		all("own switch, 5 s later", hybrid.SwitchDenyAll, hybrid.SwitchNormal, hybrid.SwitchDenyAll)

		// A new process hears of the switch with its first heartbeat.
		ls = append(ls, newLimiter(t, b.Client(nil), still(100), hybrid.Config{}))
		time.Sleep(time.Millisecond)
		all("a new process", hybrid.SwitchDenyAll, hybrid.SwitchNormal, hybrid.SwitchDenyAll, hybrid.SwitchDenyAll)

		ls[1].ClearSwitch()
		all("cleared", hybrid.SwitchDenyAll)
		flipFleet(t, ls[3], hybrid.SwitchNormal)
		time.Sleep(1001 * time.Millisecond)
		all("taken back", hybrid.SwitchNormal)
	})
}

// TestFleetSwitchOutlivesRedis checks that the switch outlives an outage of
// Redis and the loss of its state. It expires a day after the last process of
// the fleet has gone.
func TestFleetSwitchOutlivesRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		ls := []*hybrid.Limiter{
			newLimiter(t, b.Client(nil), still(100), hybrid.Config{}), newLimiter(t, b.Client(nil), still(100), hybrid.Config{}),
		}
		names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
		time.Sleep(2 * time.Second)
		flipFleet(t, ls[0], hybrid.SwitchShadow)
		time.Sleep(2 * time.Second)
		b.Kill()
		time.Sleep(5 * time.Second)
		b.Restart()
		time.Sleep(5 * time.Second)
		for i, l := range ls {
			if s, _ := l.Switch(); s != hybrid.SwitchShadow {
				t.Errorf("process %d has %v", i, s)
			}
		}
		if !b.Mini.Exists(names.Switch("api")) {
			t.Error("the fleet did not restore the switch in Redis")
		}
		if ttl := b.Mini.TTL(names.Switch("api")); ttl < 23*time.Hour || ttl > 24*time.Hour {
			t.Errorf("TTL of the restored switch = %v, want 23 h to 24 h", ttl)
		}
		b.Mini.SetTTL(names.Switch("api"), 11*time.Hour)
		for range 91 { // processes tell their settings again in 30 to 90 minutes
			if time.Sleep(time.Minute); b.Mini.TTL(names.Switch("api")) > 22*time.Hour {
				break
			}
		}
		if ttl := b.Mini.TTL(names.Switch("api")); ttl < 22*time.Hour || ttl > 24*time.Hour {
			t.Errorf("TTL after an hour and a half of heartbeats = %v, want 22 h to 24 h", ttl)
		}
		shutdown(t, ls...)
		time.Sleep(24*time.Hour + time.Second)
		if b.Mini.Exists(names.Switch("api")) {
			t.Error("the switch is still in Redis a day after the fleet has gone")
		}
	})
}

// TestFleetSwitchLocalOnly sets SwitchLocalOnly for a whole fleet, and takes it
// back. With the switch the bound of a total outage holds. Afterwards there is
// one limit again, and no unit is lost.
func TestFleetSwitchLocalOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var ls []*hybrid.Limiter
		for range 4 {
			ls = append(ls, newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(100, time.Second, 200), hybrid.Config{}))
			time.Sleep(13 * time.Millisecond)
		}
		admitted := func(during time.Duration) (units int64) {
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				for _, l := range ls {
					units += ask(t, l, "k", 1).Granted
				}
			}
			return units
		}
		time.Sleep(4 * time.Second)
		admitted(5 * time.Second)
		flipFleet(t, ls[2], hybrid.SwitchLocalOnly)
		if n := admitted(20 * time.Second); n > 200+100*20 || n < 100*18 {
			t.Errorf("%d units in 20 s with SwitchLocalOnly, want 1800 to 2200", n)
		}
		flipFleet(t, ls[1], hybrid.SwitchNormal)
		if n := admitted(20 * time.Second); n > 200+100*20+10 || n < 100*17 {
			t.Errorf("%d units in the 20 s after SwitchLocalOnly, want 1700 to 2210", n)
		}
		shutdown(t, ls...)
		for _, l := range ls {
			balance(t, l.Stats())
		}
	})
}

// TestHubSetsTheFleetsSwitch checks that a tool which is not a process of the
// fleet sets and reads the switch by name.
func TestHubSetsTheFleetsSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{})
		time.Sleep(2 * time.Second)
		tool := newHub(t, b.Client(nil), hybrid.HubConfig{})
		if s, at, err := tool.FleetSwitch(t.Context(), "api"); s != hybrid.SwitchNormal || !at.IsZero() || err != nil {
			t.Errorf("never set: %v, %v, %v", s, at, err)
		}
		if err := tool.SetFleetSwitch(t.Context(), "api", hybrid.SwitchAllowAll); err != nil {
			t.Fatal(err)
		}
		set := time.Now()
		if s, at, err := tool.FleetSwitch(t.Context(), "api"); s != hybrid.SwitchAllowAll || !at.Equal(set) || err != nil {
			t.Errorf("set: %v, %v, %v", s, at, err)
		}
		time.Sleep(1001 * time.Millisecond)
		if res := ask(t, l, "k", 1000); !res.Allowed || l.Stats().Fleet != 1 {
			t.Errorf("%+v; %+v", res, l.Stats())
		}
		for what, err := range map[string]error{
			"name":   tool.SetFleetSwitch(t.Context(), "a b", hybrid.SwitchNormal),
			"switch": tool.SetFleetSwitch(t.Context(), "api", 99),
		} {
			if !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("bad %s: %v", what, err)
			}
		}
		b.Kill()
		if err := tool.SetFleetSwitch(t.Context(), "api", hybrid.SwitchNormal); !errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("without Redis: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := tool.SetFleetSwitch(ctx, "api", hybrid.SwitchNormal); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		tool.Close()
		if err := tool.SetFleetSwitch(t.Context(), "api", hybrid.SwitchNormal); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestSwitchIsLogged checks that each change of the switch in force is logged,
// with at most one line a second, and that the last line is right.
func TestSwitchIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{Hub: hybrid.HubConfig{Logger: slog.New(log)}})
		time.Sleep(2 * time.Second)
		lines := func() (out []string) {
			for _, line := range log.all() {
				if strings.Contains(line, "switch") {
					out = append(out, line)
				}
			}
			return out
		}
		want := func(n int, contains ...string) {
			t.Helper()
			got := lines()
			if len(got) != n {
				t.Fatalf("%d lines, want %d: %q", len(got), n, got)
			}
			for _, c := range contains {
				if !strings.Contains(got[n-1], c) {
					t.Errorf("%q does not say %q", got[n-1], c)
				}
			}
		}
		want(0)
		flip(t, l, hybrid.SwitchNormal)
		want(0)
		flipFleet(t, l, hybrid.SwitchShadow)
		want(0)
		l.ClearSwitch()
		want(1, "api", "from=normal", "to=shadow", "by=fleet")
		time.Sleep(2 * time.Second)
		flip(t, l, hybrid.SwitchDenyAll)
		want(2, "from=shadow", "to=deny_all", "by=process")
		for range 10 {
			flip(t, l, hybrid.SwitchAllowAll)
			flip(t, l, hybrid.SwitchLocalOnly)
		}
		want(2)
		time.Sleep(2 * time.Second)
		want(3, "from=deny_all", "to=local_only", "by=process", "skipped=19")
		time.Sleep(5 * time.Second)
		want(3)
	})
}

// TestFleetSwitchOfALaterVersion checks that a process ignores a switch that
// its version does not know, and logs this once.
func TestFleetSwitchOfALaterVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{Hub: hybrid.HubConfig{Logger: slog.New(log)}})
		time.Sleep(2 * time.Second)
		flipFleet(t, l, hybrid.SwitchDenyAll)
		time.Sleep(500 * time.Millisecond) // between two heartbeats
		names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
		if err := b.Mini.Set(names.Switch("api"), fmt.Sprintf("1 77 %d", time.Now().Add(time.Millisecond).UnixMicro())); err != nil {
			t.Fatal(err)
		}
		b.Mini.Del(names.Changed()) // processes then look at all settings
		time.Sleep(5 * time.Second)
		if s, _ := l.Switch(); s != hybrid.SwitchNormal {
			t.Errorf("switch in force = %v, want normal", s)
		}
		odd := 0
		for _, line := range log.all() {
			if strings.Contains(line, "a value that this version does not know") && strings.Contains(line, "switch=77") {
				odd++
			}
		}
		if odd != 1 {
			t.Errorf("%d lines about the unknown switch, want 1: %q", odd, log.all())
		}
	})
}

// TestFleetSwitchFromTheFutureIsTakenBack checks that a switch with a time far
// ahead can be taken back. Cause: anyone who can write to Redis could set such
// a switch for good. Even after a FLUSHALL the processes restored it.
func TestFleetSwitchFromTheFutureIsTakenBack(t *testing.T) {
	for _, at := range []string{"1<<53", "an hour ahead"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				var ls []*hybrid.Limiter
				hears := func(when string, want hybrid.Switch) {
					t.Helper()
					time.Sleep(2100 * time.Millisecond)
					for i, l := range ls {
						if s, _ := l.Switch(); s != want {
							t.Errorf("%s: process %d has %v, want %v", when, i, s, want)
						}
					}
				}
				ahead := int64(1) << 53
				if at != "1<<53" {
					ahead = time.Now().Add(time.Hour).UnixMicro()
				}
				names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
				poison := func() {
					if err := b.Mini.Set(names.Switch("api"), fmt.Sprintf("1 %d %d", hybrid.SwitchAllowAll, ahead)); err != nil {
						t.Fatal(err)
					}
					b.Mini.Del(names.Changed()) // processes then look at all settings
				}
				// Before the processes: one that has looked already has no reason to look again until a time of the last change is gone.
				poison()
				for range 2 {
					ls = append(ls, newLimiter(t, b.Client(nil), still(100), hybrid.Config{Name: "api"}))
				}
				hears("poisoned", hybrid.SwitchAllowAll)
				flipFleet(t, ls[0], hybrid.SwitchNormal)
				hears("taken back", hybrid.SwitchNormal)

				poison()
				hears("poisoned again", hybrid.SwitchAllowAll)
				b.Mini.FlushAll()
				hears("wiped", hybrid.SwitchAllowAll) // the fleet restores the switch that it heard last
				flipFleet(t, ls[1], hybrid.SwitchDenyAll)
				hears("set after that", hybrid.SwitchDenyAll)
			})
		})
	}
}

// TestFleetSwitchIsToldAfterALoss checks that a switch outlives a Redis that loses it
// before any other process has heard of it. The time of the last change is then lost too,
// and is again the one that all processes know.
func TestFleetSwitchIsToldAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		one, two := newLimiter(t, b.Client(nil), still(100), hybrid.Config{}), newLimiter(t, b.Client(nil), still(100), hybrid.Config{})
		time.Sleep(2500 * time.Millisecond)
		flipFleet(t, one, hybrid.SwitchDenyAll)
		b.Mini.FlushAll()
		time.Sleep(2100 * time.Millisecond)
		if s, _ := two.Switch(); s != hybrid.SwitchDenyAll {
			t.Errorf("the other process has %v", s)
		}
	})
}
