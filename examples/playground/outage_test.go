package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func (f *fleet) change(t *testing.T, how func(*settings)) {
	t.Helper()
	f.ask(t, func() error {
		to := f.settings
		how(&to)
		return f.set(to)
	})
}

// TestFleetChangedInAnOutage checks that there is no verdict if a process begins
// while Redis is away. It begins with a whole share, so the fleet exceeds its
// shares, and that is not a fault of the limiter.
func TestFleetChangedInAnOutage(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, f *fleet){
		"resized": func(t *testing.T, f *fleet) { f.change(t, func(s *settings) { s.Processes = 12 }) },
		"crashed and started": func(t *testing.T, f *fleet) {
			for range 3 {
				for n := range 4 {
					f.ask(t, func() error { return f.intervene(n+1, "crash") })
					f.ask(t, func() error { return f.intervene(n+1, "start") })
				}
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			world(t, func(t *testing.T, f *fleet) {
				time.Sleep(3 * time.Second)
				f.hit(t, fault{Action: "kill"})
				time.Sleep(3 * time.Second)
				if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "holds" {
					t.Errorf("before: %+v", b)
				}
				change(t, f)
				time.Sleep(3 * time.Second)
				if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "none" || !strings.Contains(b.Why, "changed during the outage") {
					t.Errorf("after: %+v", b)
				}
				if b := boundOf(t, f.seen(t), "shared"); b.Verdict != "holds" {
					t.Errorf("%+v", b)
				}
				// The next outage is judged separately.
				f.hit(t, fault{Action: "restore"})
				time.Sleep(4 * time.Second)
				f.hit(t, fault{Action: "hang"})
				time.Sleep(3 * time.Second)
				if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "holds" {
					t.Errorf("the next outage: %+v", b)
				}
			})
		})
	}
}

// TestCountingAnewInAnOutage checks that a restart of the counting, by the
// button or by another limit or mode, includes a current outage.
func TestCountingAnewInAnOutage(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(3 * time.Second)
		f.hit(t, fault{Action: "hang"})
		time.Sleep(3 * time.Second)
		for name, change := range map[string]func(){
			"count anew": func() { f.ask(t, func() error { f.countAnew(time.Now()); return nil }) },
			"limit":      func() { f.change(t, func(s *settings) { s.Rate += 100 }) },
			"mode":       func() { f.change(t, func(s *settings) { s.Mode = "strict" }) },
			"K and T":    func() { f.change(t, func(s *settings) { s.K, s.TMs = 10, 20 }) },
		} {
			change()
			time.Sleep(4 * time.Second)
			b := boundOf(t, f.seen(t), "alone")
			if b.Verdict != "holds" || b.Allowed != 500 {
				t.Errorf("%s: %+v", name, b)
			}
		}
	})
}

// TestEndingWithoutRedisIsACrash checks that a process that ends without Redis
// counts as crashed, because it could not pay its owed units.
func TestEndingWithoutRedisIsACrash(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(3 * time.Second)
		f.change(t, func(s *settings) { s.Processes = 3 })
		if b := boundOf(t, f.seen(t), "shared"); strings.Contains(b.Why, "crashed") {
			t.Errorf("a process that has paid: %+v", b)
		}
		f.hit(t, fault{Action: "hang"})
		time.Sleep(time.Second)
		f.change(t, func(s *settings) { s.Processes = 1 })
		if b := boundOf(t, f.seen(t), "shared"); !strings.Contains(b.Why, "+ 2 crashed or ended without Redis") {
			t.Errorf("two processes that could not pay: %+v", b)
		}
	})
}

// TestKillAfterSlow checks that a kill after a slow Redis is an outage like any
// other.
func TestKillAfterSlow(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(3 * time.Second)
		f.hit(t, fault{Action: "slow", Ms: 30})
		time.Sleep(2 * time.Second)
		f.hit(t, fault{Action: "kill"})
		time.Sleep(3 * time.Second)
		if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "holds" || strings.Contains(b.Why, "MaxWait") {
			t.Errorf("%+v", b)
		}
		f.hit(t, fault{Action: "slow", Ms: 30})
		if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "none" || !strings.Contains(b.Why, "later than MaxWait") {
			t.Errorf("slow: %+v", b)
		}
	})
}

// TestNewLimitersWakeNobody checks that a new limiter for all processes leaves
// crashed processes crashed and paused ones paused.
func TestNewLimitersWakeNobody(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(2 * time.Second)
		f.ask(t, func() error { return f.intervene(2, "crash") })
		f.ask(t, func() error { return f.intervene(3, "pause") })
		before := f.resyncedNow(t)
		f.change(t, func(s *settings) { s.Mode = "deferred" })
		time.Sleep(2 * time.Second)
		s := f.seen(t)
		for i, want := range []string{"running", "crashed", "paused", "running"} {
			if s.Processes[i].State != want {
				t.Errorf("process %d is %s, want %s", i+1, s.Processes[i].State, want)
			}
		}
		last := f.samples[len(f.samples)-1]
		if last.Calls[1] != 0 || last.Calls[2] != 0 || last.Calls[0] == 0 {
			t.Errorf("calls by process: %v", last.Calls)
		}
		if after := f.resyncedNow(t); after < before {
			t.Errorf("resynced fell from %d to %d", before, after)
		}
		f.ask(t, func() error { return f.intervene(3, "resume") })
		f.ask(t, func() error { return f.intervene(2, "start") })
		time.Sleep(5 * time.Second)
		if s := f.seen(t); s.Processes[0].N != 4 {
			t.Errorf("N is %d", s.Processes[0].N)
		}
	})
}

func (f *fleet) resyncedNow(t *testing.T) (n int64) {
	t.Helper()
	f.ask(t, func() error { n = f.resynced(); return nil })
	return n
}

// TestRetiredProcessesHaveTold checks that resynced still includes processes
// that have ended.
func TestRetiredProcessesHaveTold(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(2 * time.Second)
		f.hit(t, fault{Action: "wipe"})
		time.Sleep(3 * time.Second)
		before := f.resyncedNow(t)
		f.change(t, func(s *settings) { s.Processes = 1 })
		if after := f.resyncedNow(t); before == 0 || after < before {
			t.Errorf("%d before, %d after three of four processes have gone", before, after)
		}
	})
}

// TestForeignKeysAreNotTouched checks that a cut off and wiped Redis keeps all
// keys that are not the playground's.
func TestForeignKeysAreNotTouched(t *testing.T) {
	addr := redistest.New(t).Addr()
	client := redistest.Client(t, addr)
	foreign := []string{"user:42", "playground-", "playground-of-somebody-else:v2:key", "hl:v2:requests"}
	for _, key := range foreign {
		if err := client.Set(t.Context(), key, "theirs", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := newStore(&redis.Options{Addr: addr, Network: "tcp"})
	defer s.close()
	f, err := newFleet(s, func(string, any) {}, func() bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	ours := func() int {
		t.Helper()
		keys, err := client.Keys(t.Context(), s.prefix+"*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(keys)
	}
	redistest.Eventually(t, 10*time.Second, "the fleet has keys", func() bool { return ours() > 0 })
	f.change(t, func(s *settings) { s.Running = false })
	f.hit(t, fault{Action: "kill"})
	if ours() == 0 {
		t.Error("the cut off Redis has lost the playground's keys")
	}
	f.hit(t, fault{Action: "wipe"}) // the wipe bypasses the fault, and no process writes
	if n := ours(); n > 0 {
		t.Errorf("the wiped Redis has %d keys of the playground", n)
	}
	f.hit(t, fault{Action: "restore"})
	for _, key := range foreign {
		if got := client.Get(t.Context(), key).Val(); got != "theirs" {
			t.Errorf("%s is %q", key, got)
		}
	}
	for _, want := range []string{"Redis itself keeps its memory", "All other keys are unchanged"} {
		if !f.told(want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}
