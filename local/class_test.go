package local

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

var classLimits = []hybridlimit.Limit{
	hybridlimit.TokenBucket(10, time.Second, 100), hybridlimit.LeakyBucket(10, time.Second, 100), hybridlimit.LeakyQueue(10, time.Second, 100),
	hybridlimit.FixedWindow(100, 10*time.Second), hybridlimit.SlidingWindow(100, 10*time.Second),
}

var threeClasses = []Class{{Name: "batch", Floor: 0.4}, {Name: "normal", Floor: 0.1}}

func withClasses(t *testing.T, limit hybridlimit.Limit) (l, normal, batch *Limiter) {
	t.Helper()
	l, err := New(limit, Config{Name: "api", Classes: threeClasses})
	if err != nil {
		t.Fatal(err)
	}
	normal, err = l.Class("normal")
	if err != nil {
		t.Fatal(err)
	}
	if batch, err = normal.Class("batch"); err != nil {
		t.Fatal(err)
	}
	return l, normal, batch
}

func TestClassViolations(t *testing.T) {
	_, err := New(hybridlimit.SlidingLog(10, time.Second), Config{Classes: []Class{{Name: "critical", Floor: 0.7}, {Name: "x", Floor: 0.7}}})
	for _, want := range []string{"local: ", "is not for a sliding log", "own class", "Config.Classes[1].Floor (0.7) must be above 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want also %q", err, want)
		}
	}
	l, normal, batch := withClasses(t, hybridlimit.PerSecond(10))
	if err := normal.SetLimit(hybridlimit.SlidingLog(5, time.Second)); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("a log: %v", err)
	}
	if _, err := l.Class("admin"); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("an unknown class: %v", err)
	}
	for name, want := range map[string]*Limiter{"critical": l, "normal": normal, "batch": batch, "": batch, "admin": batch} {
		if batch.ForClass(name) != hybridlimit.Limiter(want) {
			t.Errorf("ForClass(%q) is another view", name)
		}
	}
}

// TestEachClassLeavesItsFloor drains a key of each algorithm, class by class, with each verb that takes units.
func TestEachClassLeavesItsFloor(t *testing.T) {
	for _, limit := range classLimits {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(10 * time.Second))) // a window begins
				l, normal, batch := withClasses(t, limit)
				ctx := t.Context()
				take := func(v *Limiter) (got int64) {
					for {
						res, err := v.Allow(ctx, "k")
						if err != nil {
							t.Fatal(err)
						}
						if !res.Allowed {
							if peek, _ := v.Peek(ctx, "k"); peek.Allowed || peek.RetryAfter != res.RetryAfter || res.Remaining != 0 {
								t.Errorf("denied with %+v, and Peek says %+v", res, peek)
							}
							return got
						}
						got++
					}
				}
				if res, err := batch.AllowN(ctx, "k", 61); err != nil || res.RetryAfter != hybridlimit.Never || res.Limit != 60 || res.Remaining != 60 {
					t.Errorf("61 of 60: %+v, %v", res, err)
				}
				if got := batch.Policy("k").Limit.BurstSize(); got != 60 {
					t.Errorf("the burst of the policy is %d", got)
				}
				if res, err := batch.AllowAtMost(ctx, "k", 10); err != nil || res.Granted != 10 || res.Remaining != 50 {
					t.Errorf("AllowAtMost: %+v, %v", res, err)
				}
				if r, err := batch.Reserve(ctx, "k", 10); err != nil || !r.Allowed || r.Remaining != 40 {
					t.Errorf("Reserve: %+v, %v", r, err)
				}
				if got := take(batch); got != 40 {
					t.Errorf("batch got %d units, want 40", got)
				}
				if r, err := batch.Reserve(ctx, "k", 1); err != nil || r.Allowed || r.RetryAfter <= 0 {
					t.Errorf("Reserve below the floor: %+v, %v", r, err)
				}
				if res, err := batch.AllowAtMost(ctx, "k", 10); err != nil || res.Allowed {
					t.Errorf("AllowAtMost below the floor: %+v, %v", res, err)
				}
				retry, _ := batch.Allow(ctx, "k")
				if got := take(normal); got != 30 {
					t.Errorf("normal got %d units, want 30", got)
				}
				if got := take(l); got != 10 {
					t.Errorf("critical got %d units, want 10", got)
				}
				if _, err := l.Refund(ctx, "k", 40); err != nil {
					t.Fatal(err)
				}
				time.Sleep(retry.RetryAfter)
				if res, err := batch.Allow(ctx, "k"); err != nil || !res.Allowed {
					t.Errorf("denied after its RetryAfter of %v: %+v, %v", retry.RetryAfter, res, err)
				}
				short, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				if _, err := batch.Wait(short, "k", 60); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Wait: %v", err)
				}
				if _, err := batch.Wait(ctx, "k", 61); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
					t.Errorf("Wait for 61 of 60: %v", err)
				}
			})
		})
	}
}

// TestJointCallsOfClasses checks that two classes of one key take their units of one key: together they must fit.
func TestJointCallsOfClasses(t *testing.T) {
	for _, limit := range classLimits {
		l, normal, batch := withClasses(t, limit)
		ask := func(critical, rest int64) hybridlimit.Result {
			t.Helper()
			res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "k", N: critical}, hybridlimit.Ask{Limiter: batch, Key: "k", N: rest})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		if res := ask(41, 60); res.Allowed || res.RetryAfter != hybridlimit.Never {
			t.Errorf("%v: 101 of 100 units: %+v", limit, res)
		}
		if res := ask(1, 61); res.Allowed {
			t.Errorf("%v: 61 of 60 units: %+v", limit, res)
		}
		if res := ask(40, 60); !res.Allowed {
			t.Errorf("%v: 40 beside 60: %+v", limit, res)
		}
		if res, _ := normal.Peek(t.Context(), "k"); res.Allowed {
			t.Errorf("%v: units are left: %+v", limit, res)
		}
	}
}

// TestFloorsFollowTheLimit checks that a change of the limit changes the floors.
func TestFloorsFollowTheLimit(t *testing.T) {
	l, _, batch := withClasses(t, hybridlimit.TokenBucket(1, time.Hour, 100))
	ctx := t.Context()
	if err := batch.SetLimit(hybridlimit.TokenBucket(1, time.Hour, 50)); err != nil {
		t.Fatal(err)
	}
	if res, err := batch.AllowN(ctx, "k", 30); err != nil || !res.Allowed || res.Limit != 30 {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := batch.Allow(ctx, "k"); err != nil || res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := l.AllowLimit(ctx, "k", 20, hybridlimit.TokenBucket(1, time.Hour, 50)); err != nil || !res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	if err := l.SetLimit(hybridlimit.Unlimited()); err != nil {
		t.Fatal(err)
	}
	if res, err := batch.AllowN(ctx, "k", 1e9); err != nil || !res.Allowed {
		t.Errorf("a class of an unlimited limiter: %+v, %v", res, err)
	}
}

// TestHigherFloorsAdmitLess compares two limiters with the same random calls of two classes: the class with the higher floor gets at
// most as many units, plus the cost of one call. Critical calls alone decide as without classes.
func TestHigherFloorsAdmitLess(t *testing.T) {
	seed := testenv.Seed(t)
	for i := range uint64(testenv.Runs(60, 5000)) {
		rng := rand.New(rand.NewPCG(seed+i, 0))
		limit := classLimits[i%uint64(len(classLimits))]
		low := 0.05 + 0.4*rng.Float64()
		high := low + (0.5-low)*rng.Float64()
		start := time.Unix(1_800_000_000, 0) // the same windows for all
		limiter := func(classes ...Class) *Limiter {
			return newLimiter(limit, Config{Classes: classes}.withDefaults(limit), 1, start)
		}
		of := [2]*Limiter{limiter(Class{Name: "rest", Floor: low}), limiter(Class{Name: "rest", Floor: high})}
		plain, critical := limiter(), limiter(threeClasses...)
		var got [2]int64
		now := time.Duration(0)
		for range 400 {
			now += time.Duration(rng.Int64N(int64(200 * time.Millisecond)))
			n, important := 1+rng.Int64N(3), rng.IntN(4) == 0
			for j, l := range of {
				v := l.views[1]
				if important {
					v = l
				}
				var res hybridlimit.Result
				if err := v.decide(&res, now, "k", n, nil, ""); err != nil {
					t.Fatal(err)
				}
				if !important {
					got[j] += res.Granted
				}
			}
			var a, b hybridlimit.Result
			if err := errors.Join(plain.decide(&a, now, "k", n, nil, ""), critical.decide(&b, now, "k", n, nil, "")); err != nil || a != b {
				t.Fatalf("seed %d, %v: %+v without classes, %+v with: %v", seed+i, limit, a, b, err)
			}
		}
		if got[1] > got[0]+2 {
			t.Errorf("seed %d, %v: with floor %.3f the class got %d units, with %.3f %d", seed+i, limit, low, got[0], high, got[1])
		}
	}
}
