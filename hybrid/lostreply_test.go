package hybrid_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestLostReplyToADirectCall checks that a direct call whose reply is lost is sent once, and
// that the fallback decides it. Redis keeps the units that it has taken, in addition to
// those that the fallback admits: it counts too much by the cost of this call. The call is a
// failure in HubStats, and Granted does not contain its units.
func TestLostReplyToADirectCall(t *testing.T) {
	log := hybridlimit.SlidingLog(100, time.Hour)
	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit
		cfg   hybrid.Config
	}{
		{"ModeExact", still(100), hybrid.Config{Mode: hybrid.ModeExact}},
		{"sliding log", log, hybrid.Config{}},
		{"sliding log, ModeExact", log, hybrid.Config{Mode: hybrid.ModeExact}},
		{"key without memory", still(100), hybrid.Config{Mode: hybrid.ModeDeferred, MaxKeys: 1}},
	} {
		for _, v := range []redistest.Verdict{redistest.DropReply(redistest.ThenClose), redistest.DropReply(redistest.ThenHang)} {
			t.Run(tc.name+", "+v.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					link, rdb := b.Link(), b.Client(nil)
					cfg := patient(tc.cfg)
					cfg.MaxWait = 50 * time.Millisecond
					l := newLimiter(t, link.Client(nil), tc.limit, cfg)
					time.Sleep(2100 * time.Millisecond)
					taken := func(key string) (units int64) {
						if tc.limit != log {
							return debited(t, rdb, "api", key)
						}
						h, err := newLimiter(t, rdb, tc.limit, tc.cfg).History(t.Context(), key)
						for _, a := range h {
							units += a.Units
						}
						if err != nil {
							t.Error(err)
						}
						return units
					}
					ask(t, l, "k", 1)
					key, first, noMemory := "k", int64(1), tc.cfg.MaxKeys == 1
					lose := false // the reply to the next direct call
					link.Script(func(_ int, cmd []string) redistest.Verdict {
						switch {
						case noMemory && isSync(cmd): // so another key owes, and memory has no room for this one
							return redistest.DropRequest(redistest.ThenClose)
						case lose && isBare(cmd):
							lose = false
							return v
						}
						return redistest.Forward()
					})
					if noMemory {
						ask(t, l, "k", 1)
						key, first = "new", 0
					}
					before, hub := l.Stats(), l.Hub().Stats()
					lose = true
					res := ask(t, l, key, 3)
					if !res.Allowed || res.Granted != 3 || res.Source != hybridlimit.SourceFallback {
						t.Errorf("%+v", res)
					}
					if got := taken(key); got != first+3 {
						t.Errorf("Redis has taken %d units, want %d: those of the lost reply", got, first+3)
					}
					s, h := l.Stats(), l.Hub().Stats()
					if noMemory != (s.Overflow == 1) {
						t.Errorf("%d decisions without memory", s.Overflow)
					}
					if h.Failures < hub.Failures+1 || !noMemory && h.Failures > hub.Failures+1 || s.Granted != before.Granted || s.Lost != before.Lost || s.Uncertain < before.Uncertain+3 {
						t.Errorf("%d failures, %d granted, %d lost, %d uncertain; before: %d, %d, %d, %d", h.Failures, s.Granted, s.Lost, s.Uncertain, hub.Failures, before.Granted, before.Lost, before.Uncertain)
					}
					link.Script(nil)
					time.Sleep(5 * time.Second)
					shutdown(t, l)
					all := taken("k")
					if noMemory {
						all += taken(key)
					}
					if known := balance(t, l.Stats()); all != known+3 {
						t.Errorf("Redis has taken %d units, and the limiter knows of %d, want 3 less", all, known)
					}
				})
			})
		}
	}
}

// TestLostReplyToASwitch checks that a switch whose reply is lost is sent once and is an
// error, although Redis has it. The fleet hears of it with its next heartbeats, also the
// process that set it.
func TestLostReplyToASwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		l, other := newLimiter(t, link.Client(nil), still(100), hybrid.Config{}), newLimiter(t, b.Client(nil), still(100), hybrid.Config{})
		time.Sleep(2100 * time.Millisecond)
		flipFleet(t, l, hybrid.SwitchNormal) // loads the script
		before := link.Count("EVALSHA").Seen
		lose := true
		link.Script(func(_ int, cmd []string) redistest.Verdict {
			if lose && len(cmd) > 1 && cmd[1] == lua.SetSwitch.SHA {
				lose = false
				return redistest.DropReply(redistest.ThenClose)
			}
			return redistest.Forward()
		})
		if err := l.SetFleetSwitch(t.Context(), hybrid.SwitchDenyAll); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want EOF", err)
		}
		if n := link.Count("EVALSHA").Seen - before; n != 1 {
			t.Errorf("sent %d times", n)
		}
		if s, _ := l.Switch(); s != hybrid.SwitchNormal {
			t.Errorf("the process that set it has %v before a heartbeat", s)
		}
		if s, _, err := other.Hub().FleetSwitch(t.Context(), "api"); err != nil || s != hybrid.SwitchDenyAll {
			t.Errorf("Redis has %v, %v", s, err)
		}
		time.Sleep(1100 * time.Millisecond)
		for i, l := range []*hybrid.Limiter{l, other} {
			if s, _ := l.Switch(); s != hybrid.SwitchDenyAll {
				t.Errorf("process %d has %v after a heartbeat", i, s)
			}
		}
	})
}

// TestLostReplyToAHeartbeat checks that a heartbeat whose reply is lost counts the process
// once, and is no sign that Redis lost its state.
func TestLostReplyToAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		l, other := newLimiter(t, link.Client(nil), still(100), hybrid.Config{}), newLimiter(t, b.Client(nil), still(100), hybrid.Config{})
		time.Sleep(2100 * time.Millisecond)
		ask(t, l, "k", 10)
		lost := 0
		link.Script(func(_ int, cmd []string) redistest.Verdict {
			if len(cmd) > 1 && cmd[1] == lua.Fleet.SHA && lost < 2 {
				lost++
				return redistest.DropReply(redistest.ThenClose)
			}
			return redistest.Forward()
		})
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			if a, b := l.Stats().Fleet, other.Stats().Fleet; a != 2 || b != 2 {
				t.Fatalf("the processes count %d and %d", a, b)
			}
		}
		if s := l.Stats(); lost != 2 || s.Resynced != 0 {
			t.Errorf("%d replies were lost, %d keys were restored", lost, s.Resynced)
		}
	})
}
