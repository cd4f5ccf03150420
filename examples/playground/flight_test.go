package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// lookedAt returns the state of the calls in flight after a tick.
func (f *fleet) lookedAt(t *testing.T) (s flightState) {
	t.Helper()
	f.ask(t, func() error {
		f.inFlight.look(time.Now())
		s = f.lookAtFlights()
		return nil
	})
	return s
}

// calm stops both loads.
func calm(s *settings) { s.Running = false }

// TestOneCallInFlight follows a call that a page sends, from its begin to its end.
func TestOneCallInFlight(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(10 * time.Second) // Redis grants nothing in the first 3 s of a limiter
		f.change(t, calm)
		time.Sleep(10 * time.Second)
		before := f.lookedAt(t)
		if before.Running != (running{}) || !before.Booked.Known || before.Waiting != 0 {
			t.Fatalf("without load: %+v", before)
		}
		f.ask(t, func() error { return f.callNow(2, 1) })
		time.Sleep(time.Second)
		s := f.lookedAt(t)
		if p := s.Processes[1]; s.Running != (running{Shared: 1}) || p.Running.Shared != 1 || p.Held < 1 || !p.Member || p.N != 4 || p.Next == "" {
			t.Errorf("while it runs: %+v", s)
		}
		if s.Booked.Permits < 1 || s.Booked.Holders != 1 || s.Admitted != before.Admitted+1 {
			t.Errorf("while it runs: %+v", s)
		}
		if !strings.HasPrefix(s.Last, "Process 2: admitted with a permit that Redis granted") || !strings.HasSuffix(s.Last, "The call takes 3.0 s.") {
			t.Errorf("the answer: %q", s.Last)
		}
		time.Sleep(2100 * time.Millisecond)
		if s := f.lookedAt(t); s.Running != (running{}) || s.Processes[1].Running != (running{}) {
			t.Errorf("after 3 s: %+v", s)
		}
		time.Sleep(5 * time.Second)
		if s := f.lookedAt(t); s.Booked != (booked{Known: true}) {
			t.Errorf("Redis after it: %+v", s.Booked)
		}
		// The thirteenth call finds no permit.
		f.ask(t, func() error { return f.callNow(1, 13) })
		time.Sleep(2 * time.Second)
		s = f.lookedAt(t)
		if b := s.Bounds[0]; s.Running.Shared != 12 || s.Denied != before.Denied+1 || b.Verdict != "holds" || b.Measured != 12 || b.Allowed != 12 {
			t.Errorf("13 calls: %+v", s)
		}
		if !strings.HasPrefix(s.Last, "Process 1: denied after 1.0 s: the fleet uses all 12 permits.") {
			t.Errorf("the answer: %q", s.Last)
		}
	})
}

// overload makes more calls in flight than there are permits, and no calls of the rate.
func overload(s *settings) { s.CallLoad, s.Load = 2, 0 }

// TestCallsUnderFaults plays each fault under calls in flight. The limit holds, and the
// calls that the guarantee does not count are shown apart. The short form has no fault, a
// crash and a Redis that is killed; testenv.Full has all faults.
func TestCallsUnderFaults(t *testing.T) {
	t.Parallel()
	short := []string{"none", "kill", "crash"}
	for name, play := range map[string]func(t *testing.T, f *fleet){
		"none": func(t *testing.T, f *fleet) {
			if s := f.lookedAt(t); s.Most.Alone > 12 || s.Most.Outlived != 0 || s.Waiting == 0 || s.Denied == 0 {
				t.Errorf("%+v", s)
			}
		},
		"kill": func(t *testing.T, f *fleet) {
			f.hit(t, fault{Action: "kill"})
			time.Sleep(10 * time.Second)
			s := f.lookedAt(t)
			if s.Running.Alone == 0 || s.Running.Shared != 0 || s.Booked.Known {
				t.Errorf("without Redis: %+v", s)
			}
			for _, p := range s.Processes {
				if p.Running.sum() > 3 || p.Share != 3 || p.Member {
					t.Errorf("without Redis: %+v", p)
				}
			}
			f.hit(t, fault{Action: "restore"})
			time.Sleep(time.Second)
		},
		"hang": func(_ *testing.T, f *fleet) {
			f.hit(t, fault{Action: "hang"})
			time.Sleep(6 * time.Second)
			f.hit(t, fault{Action: "restore"})
		},
		"slow": func(_ *testing.T, f *fleet) {
			f.hit(t, fault{Action: "slow", Ms: 80})
			time.Sleep(6 * time.Second)
			f.hit(t, fault{Action: "restore"})
		},
		"wipe": func(_ *testing.T, f *fleet) { f.hit(t, fault{Action: "wipe"}) },
		"crash": func(t *testing.T, f *fleet) {
			running := f.lookedAt(t).Processes[1].Running.Shared
			if running == 0 {
				t.Fatal("process 2 runs no calls")
			}
			f.ask(t, func() error { return f.intervene(2, "crash") })
			if s := f.lookedAt(t); s.Processes[1].Running.sum() != 0 || s.Running.Shared > 12-running {
				t.Errorf("right after the crash: %+v", s)
			}
			if !f.told("free for others within 3 s") {
				t.Errorf("the log: %v", f.log.all())
			}
			full := false
			for range 60 { // the others run all permits within 3 s
				time.Sleep(50 * time.Millisecond)
				full = full || f.lookedAt(t).Running.Shared == 12
			}
			if !full {
				t.Errorf("3 s after the crash: %+v", f.lookedAt(t))
			}
			f.ask(t, func() error { return f.intervene(2, "start") })
			// Regression: the calls came in step, and the process heard of no free permit for as long as they did.
			time.Sleep(6 * time.Second)
			if s := f.lookedAt(t); s.Processes[1].Running.Shared == 0 {
				t.Errorf("6 s after a start beside three processes with waiting calls: %+v", s.Processes[1])
			}
		},
		"pause": func(t *testing.T, f *fleet) {
			f.ask(t, func() error { return f.intervene(2, "pause") })
			time.Sleep(8 * time.Second)
			s := f.lookedAt(t)
			if s.Running.Outlived == 0 || s.Processes[1].Running.Shared != 0 || s.Processes[1].Member {
				t.Errorf("a process that was away for 8 s: %+v", s)
			}
			f.ask(t, func() error { return f.intervene(2, "resume") })
			time.Sleep(8 * time.Second)
			if s := f.lookedAt(t); s.Running.Outlived != 0 {
				t.Errorf("8 s after it has continued: %+v", s)
			}
		},
		"another limit": func(t *testing.T, f *fleet) {
			for _, n := range []int64{4, 20} {
				f.change(t, func(s *settings) { s.Permits = n })
				time.Sleep(8 * time.Second)
				if b := f.lookedAt(t).Bounds[0]; b.Allowed != float64(n) || b.Measured != float64(n) || b.Verdict != "holds" {
					t.Errorf("with %d: %+v", n, b)
				}
			}
		},
		"other processes": func(t *testing.T, f *fleet) {
			f.change(t, func(s *settings) { s.Processes, s.Mode = 2, "strict" })
			time.Sleep(5 * time.Second)
			f.change(t, func(s *settings) { s.Processes = 6 })
		},
	} {
		if !testenv.Full() && !slices.Contains(short, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			world(t, func(t *testing.T, f *fleet) {
				f.change(t, overload)
				time.Sleep(10 * time.Second)
				play(t, f)
				time.Sleep(10 * time.Second)
				s := f.lookedAt(t)
				b := s.Bounds[0]
				if b.Verdict != "holds" || !s.Counting || int64(b.Measured) != f.settings.Permits || s.Errors != 0 {
					t.Errorf("%+v", s)
				}
				for _, p := range s.Processes {
					if !p.Member || p.Learns {
						t.Errorf("at the end: %+v", p)
					}
				}
				if len(f.flights) == 0 || f.flights[len(f.flights)-1].Limit != f.settings.Permits {
					t.Error("the chart has no points")
				}
			})
		})
	}
}

// TestFlightsAreTheLibrarys compares the figures of the page with those of the library.
func TestFlightsAreTheLibrarys(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		f.change(t, overload)
		time.Sleep(20 * time.Second)
		f.hit(t, fault{Action: "kill"})
		time.Sleep(5 * time.Second)
		f.change(t, calm)
		time.Sleep(10 * time.Second)
		s := f.lookedAt(t)
		var admitted, fallback, denied int64
		for _, slot := range f.slots {
			st := slot.flight.limiter.Stats()
			for source, n := range st.Allowed {
				admitted += n
				if source == hybridlimit.SourceFallback {
					fallback += n
				}
			}
			for _, n := range st.Denied {
				denied += n
			}
		}
		if s.Admitted != admitted || s.Denied != denied || s.Fallback != fallback || fallback == 0 || denied == 0 {
			t.Errorf("admitted %d, of the fallback %d, denied %d in the library; on the page %+v", admitted, fallback, denied, s)
		}
	})
}

// TestABrokenLimitIsShown plants a call more than the permits, and calls that do not
// count.
func TestABrokenLimitIsShown(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		f.change(t, calm)
		time.Sleep(10 * time.Second)
		f.ask(t, func() error { f.inFlight.countAnew(); return nil })
		plant := func(alone bool) bound {
			f.inFlight.begin(&inFlightCall{of: f.slots[0].flight, ends: time.Now().Add(time.Minute), alone: alone})
			return f.lookedAt(t).Bounds[0]
		}
		for range 12 {
			plant(false)
		}
		if b := plant(true); b.Verdict != "holds" || b.Measured != 12 || !strings.Contains(b.Why, "not counted: up to 1 of the fallback") {
			t.Errorf("12 calls, and one of the fallback: %+v", b)
		}
		if b := plant(false); b.Verdict != "broken" || b.Measured != 13 {
			t.Errorf("13 calls: %+v", b)
		}
	})
}
