package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// TestStaticLimitWhileCallsRun changes to a limit without state and back, while calls run and wait. Regression: Redis refused each
// message about a key with the limit Unlimited. The call that waited was denied after MaxWait, and messages were sent without an end.
func TestStaticLimitWhileCallsRun(t *testing.T) {
	for _, static := range []hybridlimit.Limit{hybridlimit.Unlimited(), hybridlimit.Blocked()} {
		synctest.Test(t, func(t *testing.T) {
			l := callFleet(t, redistest.NewBubble(t), 1, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{MaxWait: 2 * time.Second})[0]
			held := hold(t, l, 4)
			waited := make(chan hybridlimit.Result)
			go func() {
				p, res := acquire(t, l, "k", 1)
				p.Release()
				waited <- res
			}()
			synctest.Wait()
			began := time.Now()
			if err := l.SetLimit(static); err != nil {
				t.Fatal(err)
			}
			free := static == hybridlimit.Unlimited()
			if res := <-waited; res.Allowed != free || time.Since(began) > time.Second {
				t.Errorf("%v: the call that waits gets %+v after %v", static, res, time.Since(began))
			}
			before := l.Hub().Stats().Messages
			time.Sleep(10 * time.Second)
			if n := l.Hub().Stats().Messages - before; n > 20 {
				t.Errorf("%v: %d messages in 10 s", static, n)
			}
			if err := l.SetLimit(hybridlimit.Concurrent(5)); err != nil {
				t.Fatal(err)
			}
			if more := runAll(t, l); len(more) != 1 {
				t.Errorf("%v: %d calls beside 4 of 5", static, len(more))
			}
			releaseAll(held)
		})
	}
}
