package main

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// world is a fleet in virtual time, on an embedded Redis without sockets.
func world(t *testing.T, play func(t *testing.T, f *fleet)) {
	t.Helper()
	redis.SetLogger(quiet{})
	synctest.Test(t, func(t *testing.T) {
		s := newStore(nil)
		f, err := newFleet(s, func(string, any) {}, func() bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		play(t, f)
		f.close()
		s.close()
		time.Sleep(time.Second) // go-redis dials on in the background
	})
}

// ask has the fleet do something that must succeed.
func (f *fleet) ask(t *testing.T, order func() error) {
	t.Helper()
	if err := f.do(order); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) seen(t *testing.T) (s fleetState) {
	t.Helper()
	f.ask(t, func() error { s = f.look(); return nil })
	return s
}

func boundOf(t *testing.T, s fleetState, name string) bound {
	t.Helper()
	for _, b := range s.Bounds {
		if b.Name == name {
			return b
		}
	}
	t.Fatalf("no bound %q in %+v", name, s.Bounds)
	return bound{}
}

// The whole story: load, a kill, an outage, and a Redis that comes back empty.
func TestKillAndRecovery(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(10 * time.Second)
		before := f.seen(t)
		if b := boundOf(t, before, "shared"); b.Verdict != "holds" || b.Measured < 400 {
			t.Errorf("under load, from a full bucket: %+v", b)
		}
		f.ask(t, func() error { return f.fault(fault{Action: "kill"}) })
		time.Sleep(8 * time.Second)
		out := f.seen(t)
		if out.Redis.State != redisDead {
			t.Errorf("Redis is %s", out.Redis.State)
		}
		for _, p := range out.Processes {
			if p.Breaker != "open" && p.Breaker != "half-open" {
				t.Errorf("process %d has its breaker %s", p.Number, p.Breaker)
			}
		}
		alone := boundOf(t, out, "alone")
		if alone.Verdict != "holds" || alone.Allowed != 500 || alone.Measured <= 0 {
			t.Errorf("alone: %+v", alone)
		}
		// Twice the limit is offered: count-and-push takes all of it.
		if naive := boundOf(t, out, "naive"); naive.Measured < 3000 {
			t.Errorf("count and push: %+v", naive)
		}
		if n := out.Totals.Sources[4] - before.Totals.Sources[4]; n < 7000 {
			t.Errorf("%d decisions by the fallback in 8 s of 1000 calls a second", n)
		}
		f.ask(t, func() error { return f.fault(fault{Action: "restore"}) })
		time.Sleep(8 * time.Second)
		back := f.seen(t)
		for _, p := range back.Processes {
			if p.Breaker != "closed" {
				t.Errorf("process %d has its breaker %s", p.Number, p.Breaker)
			}
		}
		if b := boundOf(t, back, "shared"); b.Verdict != "holds" {
			t.Errorf("over both lives of Redis: %+v", b)
		}
		for _, want := range []string{
			"Redis is killed", "Processes 1–4: Redis does not answer; deciding locally; fallback share 1/4",
			"Redis is back, with nothing in it", "back on the shared limit", "Restored: the fleet has told Redis",
		} {
			if !f.told(want) {
				t.Errorf("the log lacks %q:\n%v", want, f.log.all())
			}
		}
	})
}

// The figures of the page are those of the library, to the unit.
func TestTotalsAreTheLibrarys(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(5 * time.Second)
		f.ask(t, func() error { return f.intervene(2, "crash") })
		time.Sleep(time.Second)
		f.ask(t, func() error { return f.intervene(2, "start") })
		set := f.settings
		set.Mode, set.Processes = "deferred", 3
		f.ask(t, func() error { return f.set(set) })
		time.Sleep(3 * time.Second)
		set.Running = false
		f.ask(t, func() error { return f.set(set) })
		time.Sleep(3 * time.Second)
		s := f.seen(t)
		var lib libraryStats
		f.ask(t, func() error { lib = f.stats(); return nil })
		var all int64
		for i, src := range shownSources {
			both := lib.Sources[src.String()]
			if got, want := s.Totals.Sources[i], both[0]+both[1]; got != want {
				t.Errorf("%v: the page has %d, the library %d", src, got, want)
			}
			all += s.Totals.Sources[i]
		}
		if all != s.Totals.Decisions || all < 5000 {
			t.Errorf("%d decisions, %d by source", s.Totals.Decisions, all)
		}
		if s.Totals.Messages == 0 {
			t.Error("no message was counted")
		}
	})
}

func (f *fleet) told(part string) bool {
	for _, e := range f.log.all() {
		if strings.Contains(e.Text, part) {
			return true
		}
	}
	return false
}

func near(got, want, part float64) bool { return math.Abs(got-want) <= part*want }
