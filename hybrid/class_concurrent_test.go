package hybrid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// TestClassesLeaveTheirFloor drains a key of each kind in each mode, class by class. Each class gets the units above its floor, and
// the critical one all that are left.
func TestClassesLeaveTheirFloor(t *testing.T) {
	t.Parallel()
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, time.Hour, 100), hybridlimit.LeakyQueue(1, time.Hour, 100),
		hybridlimit.FixedWindow(100, 24*time.Hour), hybridlimit.SlidingWindow(100, 24*time.Hour),
	} {
		for _, mode := range modes {
			t.Run(limit.String()+"/"+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := lone(t, limit, hybrid.Config{Mode: mode, MaxWait: time.Second, Classes: twoClasses})
					for _, step := range []struct {
						class string
						most  int64 // Result.Limit
						left  int64 // by the class, when it is denied
					}{{"batch", 60, 60}, {"normal", 90, 30}, {"critical", 100, 10}, {"batch", 60, 0}} {
						v, got := class(t, l, step.class), int64(0)
						if res := ask(t, v, "k", step.most+1); res.RetryAfter != hybridlimit.Never || res.Limit != step.most {
							t.Errorf("%s: a cost of %d gets %+v, want a denial for ever and Limit %d", step.class, step.most+1, res, step.most)
						}
						if q := v.Policy("k").Limit.BurstSize(); q != step.most {
							t.Errorf("%s: the burst of the policy is %d, want %d", step.class, q, step.most)
						}
						for polls := 2; ; {
							res := ask(t, v, "k", 1)
							if !res.Allowed && polls > 0 { // it may be the turn of another class of this process
								polls--
								time.Sleep(min(res.RetryAfter, 6*time.Second))
								continue
							}
							if !res.Allowed {
								if res.RetryAfter <= 0 || res.Remaining != 0 {
									t.Errorf("%s: denied with %+v", step.class, res)
								}
								break
							}
							got++
						}
						if got != step.left {
							t.Errorf("%s got %d units, want %d", step.class, got, step.left)
						}
						time.Sleep(300 * time.Millisecond) // leases go back, and debts are paid
					}
				})
			})
		}
	}
}

// TestJointCallsOfClassesDoNotLock runs joint calls with two classes of one key, in both orders.
func TestJointCallsOfClassesDoNotLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lone(t, hybridlimit.TokenBucket(1e6, time.Second, 1e6), hybrid.Config{Classes: twoClasses})
		batch := class(t, l, "batch")
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				asks := []hybridlimit.Ask{{Limiter: l, Key: "k", N: 1}, {Limiter: batch, Key: "k", N: 1}}
				if i%2 == 1 {
					asks[0], asks[1] = asks[1], asks[0]
				}
				for range 300 {
					if _, err := l.AllowJoint(t.Context(), asks); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Second)
		for _, v := range []*hybrid.Limiter{l, batch} {
			balance(t, v.Stats())
		}
		if a, b := l.Stats().Admitted, batch.Stats().Admitted; a != 1200 || b != 1200 {
			t.Errorf("the classes admitted %d and %d units, want 1200 each", a, b)
		}
	})
}
