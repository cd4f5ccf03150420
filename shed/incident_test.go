package shed_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/shed"
)

var write = flag.Bool("write", false, "write the table of TestIncident to README.md")

// report is one row of the table.

type report struct {
	name   string
	normal time.Duration // p99 of critical calls before the incident
	served [4]float64    // part served in time in the incident, by class
	at     float64       // part of the critical calls served at all in the incident
	order  [4]float64    // as served, without the first second: then the places that were free before are taken
	swing  float64       // largest difference of the shed parts of the load in spans of the incident, after the first 10 s
	back   time.Duration // from the end of the incident until no call is refused or late again
	rise   float64       // largest rise of the shed part of the load in a span after the incident
	slowly float64       // shed part of the load in the third second after the incident
}

// span is the time over which swings are measured. In one second the chance of the
// arrivals alone moves the shed part by some per cent.
const span = 5 * time.Second

// judge measures the calls of one guard.
func judge(name string, all []outcome, late time.Duration) report {
	r := report{name: name, normal: p99(all, 0, 5*time.Second, warm)}
	for class := range classes {
		r.served[class] = part(all, class, warm, warm+slow, within(late))
		r.order[class] = part(all, class, warm+time.Second, warm+slow, within(late))
	}
	r.at = part(all, 0, warm, warm+slow, served)
	shedIn := func(from, d time.Duration) float64 { return 1 - part(all, -1, from, from+d, served) }
	lo, hi := 1.0, 0.0
	for at := warm + 10*time.Second; at < warm+slow; at += span {
		lo, hi = min(lo, shedIn(at, span)), max(hi, shedIn(at, span))
	}
	r.swing = hi - lo
	r.slowly = shedIn(warm+slow+2*time.Second, time.Second)
	least := 1.0
	for at := warm + slow + time.Second; at+span <= warm+slow+after; at += span {
		r.rise = max(r.rise, shedIn(at, span)-least)
		least = min(least, shedIn(at, span))
	}
	for _, o := range all {
		if o.at >= warm+slow && (!o.served || o.took > late) {
			r.back = o.at - warm - slow
		}
	}
	return r
}

// TestIncident compares guards in one incident. It fails if the shedder misses a
// promise, or if another guard keeps them all, because the incident then shows
// nothing.
func TestIncident(t *testing.T) {
	var alone, none, bulkhead, shedder report
	run := func(name string, in incident, guard func(t *testing.T) admit, late func([]outcome) time.Duration) (r report) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := in.run(guard(t), nil)
				r = judge(name, all, late(all))
			})
		})
		return r
	}
	// Critical calls alone: the incident without the other classes.
	var late time.Duration
	alone = run("critical alone", incident{[]float64{rates[0], 1, 1, 1}, 100, slow, after, 1}, func(*testing.T) admit {
		return func(_ context.Context, class string) func() {
			if class != classes[0] {
				return nil
			}
			return func() {}
		}
	}, func(all []outcome) time.Duration {
		late = p99(all, 0, warm, warm+slow) * 3 / 2
		return late
	})
	same := func([]outcome) time.Duration { return late }
	in := incident{rates, 100, slow, after, 1}
	none = run("no shedder", in, func(*testing.T) admit { return open }, same)
	bulkhead = run("fixed limit", in, func(*testing.T) admit { return fixed(places) }, same)
	shedder = run("shedder", in, func(t *testing.T) admit { return shedding(newShedder(t)) }, same)

	if late < slowCall || late > 2*slowCall {
		t.Errorf("critical calls alone: 1.5 times their p99 is %v", late)
	}
	for _, bad := range broken(shedder) {
		t.Error("shedder: " + bad)
	}
	for _, other := range []report{none, bulkhead} {
		if other.served[0] > 0.5 {
			t.Errorf("%s serves %.1f %% of the critical calls in time: the incident is too mild", other.name, 100*other.served[0])
		}
	}
	table := tableOf(alone, none, bulkhead, shedder)
	t.Log("\n" + table)
	if *write {
		writeTable(t, table)
	}
}

// broken returns the promises that a report breaks.
func broken(r report) (bad []string) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	check(r.at == 1, "%.2f %% of the critical calls were served at all, want 100", 100*r.at)
	check(r.served[0] >= 0.99, "%.2f %% of the critical calls were served in time, want 99", 100*r.served[0])
	check(r.served[3] <= 0.02, "%.2f %% of the lowest class were served, want 2 at most", 100*r.served[3])
	check(r.order[1] > r.order[2] && r.order[2] >= r.order[3]-0.001, "a class was served more than one above it: %.4f", r.order)
	check(r.back <= 30*time.Second, "all calls are served again after %v, want 30 s", r.back)
	check(r.slowly > 0.7, "the shed part of the load is %.1f %% in the third second after the incident: traffic came back at once", 100*r.slowly)
	check(r.swing <= 0.05, "the shed part of the load swings by %.1f %%, want 5 at most", 100*r.swing)
	check(r.rise <= 0.05, "the shed part of the load rises by %.1f %% while it comes back, want 5 at most", 100*r.rise)
	return bad
}

func tableOf(rows ...report) string {
	var b strings.Builder
	b.WriteString("| in the 30 s | critical at all | critical in time | write | read | test | all calls in time again | swing |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	for _, r := range rows {
		if r.served[3] == 0 && r.name == "critical alone" {
			fmt.Fprintf(&b, "| %s | %s | %s | | | | | |\n", r.name, percent(r.at), percent(r.served[0]))
			continue
		}
		back := fmt.Sprintf("after %.0f s", r.back.Seconds())
		if r.back > after-2*time.Second {
			back = fmt.Sprintf("later than %.0f s", after.Seconds())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", r.name, percent(r.at),
			percent(r.served[0]), percent(r.served[1]), percent(r.served[2]), percent(r.served[3]), back, percent(r.swing))
	}
	return b.String()
}

// writeTable replaces the table between the two marks of README.md.
func writeTable(t *testing.T, table string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), "<!-- table -->\n")
	_, end, ok2 := strings.Cut(rest, "<!-- end of table -->")
	if !ok1 || !ok2 {
		t.Fatal("README.md has no marks for the table")
	}
	text = []byte(before + "<!-- table -->\n" + table + "<!-- end of table -->" + end)
	if err := os.WriteFile("README.md", text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPartialOverload slows the dependency so that six in ten calls must be shed.
// Then the two lower classes are shed, one of them in part, for two minutes.
func TestPartialOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := incident{rates, 10, 2 * time.Minute, 0, 2}
		all := in.run(shedding(newShedder(t)), nil)
		lo, hi := 1.0, 0.0
		from, to := warm+time.Minute, warm+in.slow // the limit of failsafe-go needs the minute to settle
		for at := from; at < to; at += 10 * time.Second {
			shed := 1 - part(all, -1, at, at+10*time.Second, served)
			lo, hi = min(lo, shed), max(hi, shed)
		}
		if hi-lo > 0.05 || lo < 0.4 {
			t.Errorf("the shed part of the load is %.3f to %.3f, want a swing of 0.05 at most", lo, hi)
		}
		byClass := make([]float64, len(classes))
		for class := range classes {
			byClass[class] = part(all, class, from, to, served)
		}
		if byClass[0] != 1 || byClass[1] < 0.99 || byClass[2] < 0.2 || byClass[3] > 0.01 {
			t.Errorf("served by class: %.3f", byClass)
		}
		t.Logf("shed %.3f to %.3f, served by class %.3f", lo, hi, byClass)
	})
}

// TestNothingIsShedWithRoom runs the load of a normal day for a minute.
func TestNothingIsShedWithRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShedder(t)
		incident{rates, 1, 30 * time.Second, 0, 3}.run(shedding(s), nil)
		for _, c := range s.Stats().Classes {
			if c.Shed > 0 || c.Allowed == 0 {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestTheLimitDoesNotDrift runs three minutes of an incident with room for more calls.
// failsafe-go alone raises the limit then (TestFactTheBaselineDrifts).
func TestTheLimitDoesNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := shed.New(shed.Config{Classes: classes, Healthy: 50 * time.Millisecond, MaxInFlight: 200, MinInFlight: 10})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		hold := func(d time.Duration) admit { // a worker without a pool
			return func(ctx context.Context, class string) func() {
				permit, res, _ := s.Acquire(ctx, class)
				if !res.Allowed {
					return nil
				}
				time.Sleep(d)
				return permit.Release
			}
		}
		drive := func(n int, each, total time.Duration) {
			until := time.Now().Add(total)
			for range n {
				go func() {
					for time.Now().Before(until) {
						if release := hold(each)(t.Context(), "write"); release != nil {
							release()
						} else {
							time.Sleep(100 * time.Millisecond)
						}
					}
				}()
			}
			time.Sleep(total + 2*each)
		}
		drive(20, 10*time.Millisecond, 2*time.Minute) // the limit comes down to 5 times 20
		healthy, most := s.Stats().Limit, 0
		for range 10 {
			drive(110, time.Second, 20*time.Second)
			most = max(most, s.Stats().Limit)
		}
		if healthy != 100 || most > healthy {
			t.Errorf("limit %d when healthy, up to %d in the incident", healthy, most)
		}
	})
}
