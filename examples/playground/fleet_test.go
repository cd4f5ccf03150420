package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// world runs a fleet in virtual time, with an embedded Redis without sockets.
func world(t *testing.T, play func(t *testing.T, f *fleet)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(nil)
		f, err := newFleet(s, func(string, any) {}, func() bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		play(t, f)
		f.close()
		s.close()
		time.Sleep(time.Second) // go-redis still dials in the background
	})
}

// ask runs an order that must succeed.
func (f *fleet) ask(t *testing.T, order func() error) {
	t.Helper()
	if err := f.do(order); err != nil {
		t.Fatal(err)
	}
}

// hit injects a valid fault.
func (f *fleet) hit(t *testing.T, q fault) {
	t.Helper()
	if err := f.inflict(q); err != nil {
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

// TestKillAndRecovery plays load, a kill, an outage, and a Redis that comes back
// empty.
func TestKillAndRecovery(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(10 * time.Second)
		// This connection is from before the kill, so the next call on it fails.
		if err := f.store.ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := f.seen(t)
		if b := boundOf(t, before, "shared"); b.Verdict != "holds" || b.Measured < 250 {
			t.Errorf("under load, from a full bucket: %+v", b)
		}
		f.hit(t, fault{Action: "kill"})
		time.Sleep(8 * time.Second)
		out := f.seen(t)
		if out.Redis.State != redisDead {
			t.Errorf("Redis is %s, want dead", out.Redis.State)
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
		// The load is three times the limit, and count-and-push admits all of
		// it.
		if naive := boundOf(t, out, "naive"); naive.Measured < 6500 {
			t.Errorf("count and push: %+v", naive)
		}
		if n := out.Totals.Sources[4] - before.Totals.Sources[4]; n < 11_000 {
			t.Errorf("%d decisions by the fallback in 8 s of 1500 calls a second", n)
		}
		f.hit(t, fault{Action: "restore"})
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
			"Redis is killed", "Processes 1–4: Redis does not answer (check Redis and the network); its keys are decided locally, by each limiter's fallback; fallback share 1/4",
			"Redis is back, with nothing in it", "the shared limit holds for all keys again", " units: the fleet has told Redis what it had lost",
		} {
			if !f.told(want) {
				t.Errorf("the log lacks %q:\n%v", want, f.log.all())
			}
		}
	})
}

// TestTotalsAreTheLibrarys checks that the figures of the page equal those of
// the library, to the unit.
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
		var s fleetState
		var lib libraryStats
		var messages int64 // heartbeats continue, so the number is between this one and lib's
		f.ask(t, func() error {
			messages = f.stats().Messages
			f.sampleAt(time.Now())
			s, lib = f.look(), f.stats()
			return nil
		})
		var all, admitted int64
		for i, src := range shownSources {
			both := lib.Sources[src.String()]
			if got, want := s.Totals.Sources[i], both[0]+both[1]; got != want {
				t.Errorf("%v: the page has %d, the library %d", src, got, want)
			}
			all += s.Totals.Sources[i]
			admitted += both[0]
		}
		if all != s.Totals.Decisions || all < 5000 {
			t.Errorf("%d decisions, %d by source", s.Totals.Decisions, all)
		}
		if n := s.Totals.Messages; n == 0 || n < messages || n > lib.Messages {
			t.Errorf("%d messages on the page, %d to %d in the library", n, messages, lib.Messages)
		}
		if s.Totals.Admitted != admitted {
			t.Errorf("%d admitted on the page, %d in the library", s.Totals.Admitted, admitted)
		}
		for i, p := range s.Processes {
			if l := lib.Processes[i]; p.Number != l.Number || p.N != l.N || p.Credit != l.Credit || p.Breaker != l.Breaker || l.N != 3 {
				t.Errorf("process %d: the page has %+v, the library %+v", i+1, p, l)
			}
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

// TestWipe checks that the fleet tells a wiped Redis what it has lost. Redis had
// counted units since the last views of the processes. They stay forgotten, and
// are at most a burst.
func TestWipe(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(5 * time.Second)
		f.hit(t, fault{Action: "wipe"})
		time.Sleep(4 * time.Second)
		if !f.told("Redis is wiped") || !f.told(" units: the fleet has told Redis what it had lost") {
			t.Errorf("the log: %v", f.log.all())
		}
		b := boundOf(t, f.seen(t), "shared")
		if b.Measured > b.Allowed+500 || (b.Verdict == "holds") != (b.Measured <= b.Allowed) {
			t.Errorf("%+v", b)
		}
	})
}

// TestLoadWaitsForAPage checks that there are no calls while no page is open,
// and that they continue when one is.
func TestLoadWaitsForAPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(nil)
		open := true
		f, err := newFleet(s, func(string, any) {}, func() bool { return open })
		if err != nil {
			t.Fatal(err)
		}
		calls := func() (n int64) {
			f.ask(t, func() error { n = f.look().Totals.Offered; return nil })
			return n
		}
		time.Sleep(3 * time.Second)
		f.ask(t, func() error { open = false; return nil })
		time.Sleep(2 * time.Second)
		before := calls()
		time.Sleep(10 * time.Second)
		if n := calls(); n != before {
			t.Errorf("%d calls without a page", n-before)
		}
		f.ask(t, func() error { open = true; return nil })
		time.Sleep(3 * time.Second)
		if n := calls(); n < before+1000 {
			t.Errorf("%d calls in 3 s with a page", n-before)
		}
		f.close()
		s.close()
		time.Sleep(time.Second)
	})
}
