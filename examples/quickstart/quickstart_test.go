package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestMain makes the test binary play the child processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "redis" || os.Args[1] == "worker") {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestInVirtualTime plays the three phases with the limiter of the program on virtual time. Each
// bound holds, and each process decides in each phase.
func TestInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const phase = 5 * time.Second
		b := redistest.NewBubble(t)
		var limiters []*hybrid.Limiter
		for range processes {
			l, err := newLimiter(b.Client(nil), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			limiters = append(limiters, l)
		}
		for _, l := range limiters {
			if err := l.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second) // all are counted
		begin := time.Now().Add(100 * time.Millisecond)
		reports := make(chan []decision, processes)
		for i, l := range limiters {
			go func() {
				report, err := call(l, i+1, [2]time.Time{begin, begin.Add(3 * phase)})
				if err != nil {
					t.Error(err)
				}
				reports <- report
			}()
		}
		r := &run{phase: phase, killed: phase, restarted: 2 * phase}
		time.Sleep(time.Until(begin.Add(phase)))
		b.Kill()
		time.Sleep(phase)
		b.Restart()
		for range processes {
			r.decisions = append(r.decisions, <-reports...)
		}
		slices.SortStableFunc(r.decisions, func(a, b decision) int { return int(a.At - b.At) })
		for _, v := range r.judge() {
			if v.problem != "" || v.units < rate*int64(phase/time.Second)/2 {
				t.Errorf("%+v", v)
			}
		}
		if picture := r.picture(); strings.Count(picture, "\n") != 9 || !strings.Contains(picture, "█") {
			t.Errorf("the picture is\n%s", picture)
		}
	})
}

// TestInterrupt checks that the end of the context, for example by an interrupt,
// leaves no child: play waits for each.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	if err := demonstrate(ctx, new(bytes.Buffer), time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

// sample returns a run with phases of 10 s in which the fleet admits exactly its
// rate, each process in turn. The processes decide alone from the kill until half
// a second after the restart.
func sample() *run {
	r := &run{phase: 10 * time.Second, killed: 10 * time.Second, restarted: 20 * time.Second}
	for i := range 30 * rate {
		at := time.Duration(i) * time.Second / rate
		r.decisions = append(r.decisions, decision{i%processes + 1, at, at > r.killed && at < r.restarted+500*time.Millisecond, 1})
	}
	return r
}

// add adds n units of process 1 to a run.
func (r *run) add(at time.Duration, alone bool, n int64) {
	r.decisions = append(r.decisions, decision{1, at, alone, n})
	slices.SortStableFunc(r.decisions, func(a, b decision) int { return int(a.At - b.At) })
}

// TestVerdict checks the verdicts at their bounds, which are 28, 4 and 28. The
// first unit of the sample leaves burst - 1.
func TestVerdict(t *testing.T) {
	const above, nothing = "above the bound", "decided nothing"
	for _, tc := range []struct {
		name   string
		change func(r *run)
		want   [3]string // parts of the problems
	}{
		{"the rate", func(*run) {}, [3]string{}},
		{"burst and credit", func(r *run) { r.add(time.Second, false, burst+27) }, [3]string{}},
		{"one more", func(r *run) { r.add(time.Second, false, burst+28) }, [3]string{above}},
		{"one more, in two intervals", func(r *run) { r.add(time.Second, false, 400); r.add(2*time.Second, false, burst+28-400) }, [3]string{above}},
		{"leases spent after the kill", func(r *run) { r.add(10*time.Second, false, burst+28) }, [3]string{above}},
		{"all shares at once", func(r *run) { r.add(15*time.Second, true, burst+3) }, [3]string{}},
		{"more than the shares", func(r *run) { r.add(15*time.Second, true, burst+4) }, [3]string{"", above}},
		{"a burst after the restart", func(r *run) { r.add(21*time.Second, false, burst+27) }, [3]string{}},
		{"more than a burst after the restart", func(r *run) { r.add(21*time.Second, false, burst+28) }, [3]string{"", "", above}},
		{"a new burst from the empty Redis", func(r *run) {
			r.add(19900*time.Millisecond, false, burst+20) // a lease of before
			r.add(20100*time.Millisecond, false, 109)      // 100 have been refilled
		}, [3]string{"", "", above}},
		{"a process that stood still", func(r *run) {
			r.decisions = slices.DeleteFunc(r.decisions, func(d decision) bool { return d.Alone && d.Process == 2 })
		}, [3]string{"", nothing}},
		{"a process that did not come back", func(r *run) {
			r.decisions = slices.DeleteFunc(r.decisions, func(d decision) bool { return d.At > r.restarted && !d.Alone && d.Process == 3 })
		}, [3]string{"", "", nothing}},
	} {
		r := sample()
		tc.change(r)
		for i, v := range r.judge() {
			if (v.problem == "") != (tc.want[i] == "") || !strings.Contains(v.problem, tc.want[i]) {
				t.Errorf("%s: %+v, want %q", tc.name, v, tc.want[i])
			}
		}
	}
}
