package hybrid_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// class returns a view, and fails the test without one.
func class(tb testing.TB, l *hybrid.Limiter, name string) *hybrid.Limiter {
	tb.Helper()
	v, err := l.Class(name)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// drained takes all units of a key that the class of a view may take.
func drained(tb testing.TB, v *hybrid.Limiter) {
	tb.Helper()
	for left := 1000; ask(tb, v, "k", 1).Allowed; left-- {
		if left == 0 {
			tb.Fatal("the key never runs out")
		}
	}
}

var twoClasses = []hybrid.Class{{Name: "normal", Floor: 0.1}, {Name: "batch", Floor: 0.4}}

// TestClassViolations checks that all violations of the classes are in one error.
func TestClassViolations(t *testing.T) {
	rdb := redistest.Client(t, redistest.Mini(t).Addr())
	_, err := hybrid.New(rdb, hybridlimit.SlidingLog(10, time.Second), hybrid.Config{Name: "api", Classes: []hybrid.Class{
		{Name: "a b", Floor: 0.6},
		{Name: "critical", Floor: 0.2},
		{Name: "x", Floor: 0.2},
		{Name: "x", Floor: 0},
		{Name: "y", Floor: -1},
		{Name: "z", Floor: 0.3},
		{Name: "w", Floor: 0.4},
		{Name: "v", Floor: 0.5},
	}})
	for _, want := range []string{
		`Config.Classes (8) must not have more than 7`, `Config.Classes (8) is not for a sliding log`,
		`Config.Classes[0].Name ("a b") is required`, `Config.Classes[0].Floor (0.6) must be above 0 and at most 0.5`,
		`Config.Classes[1].Name ("critical") is the name`, `Config.Classes[2].Floor (0.2) is the floor of another class`,
		`Config.Classes[3].Name ("x") is the name of another`, `Config.Classes[3].Floor (0) must be above 0`, `Config.Classes[4].Floor (-1)`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want also %s", err, want)
		}
	}
}

// TestClassByName checks the names that have a view, and that an unknown name is never critical for an adapter.
func TestClassByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(100), hybrid.Config{Classes: twoClasses})
		normal, batch := class(t, l, "normal"), class(t, l, "batch")
		if class(t, l, "critical") != l || class(t, batch, "critical") != l || class(t, normal, "batch") != batch {
			t.Error("views of one limiter do not find each other")
		}
		for name, want := range map[string]*hybrid.Limiter{"critical": l, "normal": normal, "batch": batch, "": batch, "Critical": batch, "admin": batch} {
			if got := normal.ForClass(name); got != want {
				t.Errorf("ForClass(%q) is another view", name)
			}
		}
		for _, name := range []string{"", "admin"} {
			if _, err := l.Class(name); !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("Class(%q): %v, want ErrInvalid", name, err)
			}
		}
		plain := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(100), hybrid.Config{Name: "plain"})
		if class(t, plain, "critical") != plain || plain.ForClass("admin") != plain {
			t.Error("a limiter without classes is its only class")
		}
		if err := l.SetLimit(hybridlimit.SlidingLog(5, time.Second)); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("a log for a limiter with classes: %v", err)
		}
	})
}

// TestClassRetryAfter checks that a denied call of a class is admitted after its RetryAfter, and that a reservation books nothing
// below the floor.
func TestClassRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lone(t, hybridlimit.TokenBucket(10, time.Second, 20), hybrid.Config{Mode: hybrid.ModeStrict, MaxWait: time.Second, Classes: twoClasses})
		batch := class(t, l, "batch")
		drained(t, batch)
		res := ask(t, batch, "k", 1)
		if r, err := batch.Reserve(t.Context(), "k", 2); err != nil || r.Allowed {
			t.Errorf("booked below the floor: %+v, %v", r, err)
		}
		if r := ask(t, l, "k", 8); !r.Allowed {
			t.Errorf("the critical class found %+v, want 8 of 20 units", r)
		}
		time.Sleep(800 * time.Millisecond) // the 8 units come back
		time.Sleep(res.RetryAfter)
		if again := ask(t, batch, "k", 1); !again.Allowed {
			t.Errorf("denied after its RetryAfter of %v: %+v", res.RetryAfter, again)
		}
		began := time.Now()
		if _, err := batch.Wait(t.Context(), "k", 2); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("Wait took %v: %v", time.Since(began), err)
		}
		if _, err := batch.Reserve(t.Context(), "k", 13); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
			t.Errorf("13 of 12 units: %v", err)
		}
	})
}

// TestFloorsFollowTheLimit checks that a change of the limit changes the floors of all classes, and keeps used units.
func TestFloorsFollowTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lone(t, still(100), hybrid.Config{Mode: hybrid.ModeStrict, MaxWait: time.Second, Classes: twoClasses})
		batch := class(t, l, "batch")
		drained(t, batch)
		time.Sleep(2 * time.Second)
		if err := batch.SetLimit(still(50)); err != nil {
			t.Fatal(err)
		}
		// 40 units are left, capped at 50. The floor of batch is 20 now.
		if res := ask(t, batch, "k", 20); !res.Allowed || res.Limit != 30 {
			t.Errorf("20 of the 40 units left: %+v", res)
		}
		if res := ask(t, batch, "k", 1); res.Allowed {
			t.Errorf("below the floor of 20: %+v", res)
		}
		if res := ask(t, l, "k", 20); !res.Allowed {
			t.Errorf("the critical class found %+v, want 20 units", res)
		}
	})
}

// TestClassesShareTheFallback checks that the classes of a key have one share of the fallback, with the floors inside.
func TestClassesShareTheFallback(t *testing.T) {
	for _, fallback := range []hybrid.Fallback{hybrid.FallbackShare, hybrid.FallbackFull} {
		t.Run(fallback.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{Fallback: fallback, Classes: twoClasses, Hub: hybrid.HubConfig{FleetSize: 2}})
				share := int64(50)
				if fallback == hybrid.FallbackFull {
					share = 100
				}
				if err := l.SetSwitch(hybrid.SwitchLocalOnly); err != nil {
					t.Fatal(err)
				}
				take := func(name string) (got int64) {
					for v := class(t, l, name); ask(t, v, "k", 1).Allowed; {
						got++
					}
					return got
				}
				batch, normal, critical := take("batch"), take("normal"), take("critical")
				if batch != share*6/10 || normal != share*3/10 || critical != share/10 {
					t.Errorf("the classes got %d, %d and %d of a share of %d", batch, normal, critical, share)
				}
				if more := take("batch"); more != 0 {
					t.Errorf("batch got %d units of a used share", more)
				}
				// A call under two classes takes all or nothing of the share.
				before := class(t, l, "critical")
				res, err := l.AllowJoint(t.Context(), []hybridlimit.Ask{{Limiter: before, Key: "j", N: 1}, {Limiter: class(t, l, "batch"), Key: "k", N: 1}})
				if err != nil || res.Allowed {
					t.Errorf("a joint call with a used share: %+v, %v", res, err)
				}
				for got := int64(0); ; got++ {
					if !ask(t, before, "j", 1).Allowed {
						if got != share {
							t.Errorf("after a denied joint call, %d units were left of %d", got, share)
						}
						break
					}
				}
			})
		})
	}
}

// TestFleetWithAndWithoutClasses checks the divisor of C in a fleet whose processes have three classes, one, and none.
func TestFleetWithAndWithoutClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		limit := hybridlimit.TokenBucket(1000, time.Second, 1200)
		var ls []*hybrid.Limiter
		for _, classes := range [][]hybrid.Class{twoClasses, {{Name: "rest", Floor: 0.2}}, nil} {
			ls = append(ls, newLimiter(t, b.Client(nil), limit, hybrid.Config{Overshoot: 1, Classes: classes}))
		}
		time.Sleep(10 * time.Second)
		for i, l := range ls {
			if s := l.Stats(); s.Fleet != 3 || s.Credit != 1200/(3+2+1-1) {
				t.Errorf("limiter %d: N is %d and C %d, want 3 and 240: 6 accounts", i, s.Fleet, s.Credit)
			}
		}
	})
}

// TestHigherFloorsAdmitLess compares two fleets of one process with the same traffic of two classes. In one of them the floor is
// higher: its class gets at most as many units. The sum over the classes stays within the bucket.
func TestHigherFloorsAdmitLess(t *testing.T) {
	t.Parallel()
	inPairs(t, seeds(2, 4), func(t *testing.T, rng *rand.Rand) {
		limit := hybridlimit.TokenBucket(1+rng.Int64N(100), time.Second, 20+rng.Int64N(100))
		low := 0.05 + 0.4*rng.Float64()
		high := low + (0.5-low)*rng.Float64()
		var got [2]int64
		traffic := trafficOf(rng, float64(limit.Rate), 3, 800)
		var critical []bool
		for range traffic {
			critical = append(critical, rng.IntN(4) == 0)
		}
		for i, floor := range []float64{low, high} {
			l := lone(t, limit, hybrid.Config{Mode: hybrid.ModeExact, MaxWait: time.Second, Classes: []hybrid.Class{{Name: "rest", Floor: floor}}})
			rest, began, all := class(t, l, "rest"), time.Now(), int64(0)
			for j, c := range traffic {
				time.Sleep(c.after)
				v := rest
				if critical[j] {
					v = l
				}
				n := ask(t, v, "k", c.n).Granted
				if all += n; v == rest {
					got[i] += n
				}
			}
			if most := limit.Burst + int64(float64(limit.Rate)*time.Since(began).Seconds()) + 1; all > most {
				t.Errorf("floor %.2f: the classes got %d units, the bucket has %d", floor, all, most)
			}
		}
		// A unit that the higher floor keeps may let a cheaper call pass later: at most one call's cost.
		if got[1] > got[0]+2 {
			t.Errorf("%v: with floor %.3f the class got %d units, with %.3f %d", limit, low, got[0], high, got[1])
		}
	})
}

// TestOneClassIsNoClass compares the critical class of a limiter whose other classes have no calls with a limiter without classes.
func TestOneClassIsNoClass(t *testing.T) {
	t.Parallel()
	inPairs(t, 3, func(t *testing.T, rng *rand.Rand) {
		limit := hybridlimit.TokenBucket(1+rng.Int64N(100), time.Second, 1+rng.Int64N(100))
		plain := lone(t, limit, hybrid.Config{Mode: hybrid.ModeExact, MaxWait: time.Second})
		classed := lone(t, limit, hybrid.Config{Mode: hybrid.ModeExact, MaxWait: time.Second, Classes: twoClasses})
		for i, c := range trafficOf(rng, float64(limit.Rate), 3, 600) {
			time.Sleep(c.after)
			if a, b := ask(t, plain, "k", c.n), ask(t, classed, "k", c.n); a != b {
				t.Fatalf("call %d: %+v without classes, %+v with", i, a, b)
			}
		}
	})
}

// TestInspectOfAClass checks the class, the floor and the shared fallback in an inspection, and that it changes nothing.
func TestInspectOfAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lone(t, still(100), hybrid.Config{Classes: twoClasses})
		batch := class(t, l, "batch")
		ask(t, batch, "k", 1)
		i, err := batch.Inspect(t.Context(), "k")
		if err != nil || i.Class != "batch" || i.Floor != 40 || !strings.Contains(i.Sentence, "class batch") {
			t.Errorf("%+v, %v", i, err)
		}
		if i, _ := l.Inspect(t.Context(), "k"); i.Class != "critical" || i.Floor != 0 {
			t.Errorf("of the limiter itself: %+v", i)
		}
		drained(t, batch)
		if res := ask(t, l, "k", 5); !res.Allowed {
			t.Errorf("critical: %+v", res)
		}
		time.Sleep(9 * time.Second) // the views prove nothing any more
		ask(t, batch, "k", 1)
		if i, err := batch.Inspect(t.Context(), "k"); err != nil || !strings.Contains(i.Sentence, "has 35 units left, all of them below the floor of the class") {
			t.Errorf("below its floor: %s, %v", i.Sentence, err)
		}
		if err := l.SetSwitch(hybrid.SwitchLocalOnly); err != nil {
			t.Fatal(err)
		}
		for range 300 {
			if i, err := batch.Inspect(t.Context(), "new"); err != nil || i.Outcome != hybrid.OutcomeAllow {
				t.Fatalf("an inspection used up units: %+v, %v", i, err)
			}
		}
	})
}

// TestMetricsOfClasses checks that a limiter with classes has series of each class, and one without has no such attribute.
func TestMetricsOfClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &metertest.Provider{}
		h := newHub(t, redistest.NewBubble(t).Client(nil), hybrid.HubConfig{MeterProvider: m})
		api := add(t, h, still(100), hybrid.Config{Name: "api", Classes: twoClasses})
		plain := add(t, h, still(100), hybrid.Config{Name: "plain"})
		time.Sleep(3 * time.Second)
		ask(t, api, "k", 3)
		ask(t, class(t, api, "batch"), "k", 5)
		ask(t, plain, "k", 7)
		synctest.Wait()
		got := m.Collect(t)
		for of, want := range map[string]int64{
			"rate_limiting.class=critical,rate_limiting.policy=api": 3, "rate_limiting.class=normal,rate_limiting.policy=api": 0,
			"rate_limiting.class=batch,rate_limiting.policy=api": 5, "rate_limiting.policy=plain": 7,
		} {
			if units, ok := got["rate_limiting.units{"+of+",rate_limiting.unit.fate=admitted}"]; !ok || units != want {
				t.Errorf("%s admitted %d units (%v), want %d", of, units, ok, want)
			}
		}
		for _, l := range []*hybrid.Limiter{api, class(t, api, "batch")} {
			balance(t, l.Stats())
		}
		if d := h.Stats().Decisions; d != 3 {
			t.Errorf("the hub has made %d decisions, want 3: those of all classes", d)
		}
	})
}

// TestShutdownOfClasses checks that Shutdown of any view pays the units of all classes, and closes all.
func TestShutdownOfClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(1000), hybrid.Config{Mode: hybrid.ModeDeferred, Classes: twoClasses})
		batch := class(t, l, "batch")
		time.Sleep(3 * time.Second)
		for range 20 {
			ask(t, l, "k", 1)
			ask(t, batch, "k", 2)
		}
		if err := batch.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("the limiter after Shutdown of a class: %v", err)
		}
		if got := debited(t, b.Client(nil), "api", "k"); got != 60 {
			t.Errorf("Redis has debited %d units, want 60", got)
		}
	})
}
