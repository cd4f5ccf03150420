package hybrid_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// borderFault is a fault at the border of a day. The border is at 0.
type borderFault struct {
	name       string
	begin, end time.Duration
	kind       string        // "hung", "wiped", "stepped"
	step       time.Duration // of Redis's clock
}

// TestFaultsAtTheBorderOfADay puts twice the limit on a fleet over the border of a day, and lets Redis hang, lose its
// memory or step its clock there. Beside the fallback, each day of Redis's clock admits at most the limit, (N-1)·C, and
// what the theorem of docs/protocol.md adds for the fault.
func TestFaultsAtTheBorderOfADay(t *testing.T) {
	t.Parallel()
	faults := []borderFault{
		{name: "hung before", begin: -3 * time.Second, end: -200 * time.Millisecond, kind: "hung"},
		{name: "hung over the border", begin: -2 * time.Second, end: 2 * time.Second, kind: "hung"},
		{name: "hung after", begin: 50 * time.Millisecond, end: 3 * time.Second, kind: "hung"},
		{name: "wiped before", begin: -1500 * time.Millisecond, kind: "wiped"},
		{name: "wiped at the border", begin: 0, kind: "wiped"},
		{name: "wiped after", begin: 1500 * time.Millisecond, kind: "wiped"},
		{name: "stepped over the border", begin: -4 * time.Second, kind: "stepped", step: time.Hour},
		{name: "stepped back over it", begin: 4 * time.Second, kind: "stepped", step: -time.Minute},
	}
	for _, mode := range modes {
		for _, f := range faults {
			t.Run(fmt.Sprint(mode, "/", f.name), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { f.run(t, mode) })
			})
		}
	}
}

func (f borderFault) run(t *testing.T, mode hybrid.Mode) {
	const n, rate = 3, 300
	rng, b := testenv.Rand(t), redistest.NewBubble(t)
	border := midnight()
	var skew atomic.Int64 // ns
	aheadBy(b, func() time.Duration { return time.Duration(skew.Load()) })
	time.Sleep(time.Until(border.Add(-20 * time.Second)))
	ls, links := startDay(t, b, n, azoresDay(rate), hybrid.Config{Mode: mode})
	credit := ls[0].Stats().Credit
	var lately []time.Time // admissions by the shared limit
	days := map[time.Time]int64{}
	begun, ended := false, f.kind != "hung"
	allowed := int64(0)
	for time.Until(border) > -20*time.Second {
		if !begun && time.Until(border) <= -f.begin {
			begun = true
			switch f.kind {
			case "hung":
				for _, l := range links {
					l.Pause()
				}
			case "wiped": // views are at most a second old
				for _, at := range lately {
					if time.Since(at) < time.Second {
						allowed++
					}
				}
				b.Mini.FlushAll()
			case "stepped":
				skew.Add(int64(f.step))
				allowed = rate + credit
			}
		}
		if !ended && time.Until(border) <= -f.end {
			ended = true
			for _, l := range links {
				l.Resume()
			}
		}
		if res := ask(t, ls[rng.IntN(n)], "k", 1); res.Allowed && res.Source != hybridlimit.SourceFallback {
			now := time.Now()
			lately = append(lately, now)
			days[now.Add(time.Duration(skew.Load())-time.Hour).Truncate(24*time.Hour)]++ // of the Azores
		}
		time.Sleep(time.Duration(rng.Int64N(40)) * time.Millisecond)
	}
	total := int64(0)
	for day, units := range days {
		if total += units; units > rate+(n-1)*credit+allowed {
			t.Errorf("%v: %d units, want at most %d + 2·%d + %d", day, units, rate, credit, allowed)
		}
	}
	if len(days) < 2 || total < rate {
		t.Errorf("%d days with %d units: the load does not test the limit", len(days), total)
	}
	shutdown(t, ls...)
}
