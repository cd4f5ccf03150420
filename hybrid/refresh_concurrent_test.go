package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestRefreshAndInvalidateConcurrently lets limits change under calls, refreshes and Invalidates of all kinds. In the end each
// key has its last limit, and the books balance.
func TestRefreshAndInvalidateConcurrently(t *testing.T) {
	calls := 150
	if testenv.Full() {
		calls = 400
	}
	synctest.Test(t, func(t *testing.T) {
		limits := newTable(still(1000))
		l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(500), hybrid.Config{
			LimitFor: limits.limitFor, LimitRefresh: 10 * time.Millisecond, MaxWait: time.Second, MaxKeys: 20,
		})
		time.Sleep(2300 * time.Millisecond)
		var wg sync.WaitGroup
		for g := range 16 {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			wg.Go(func() {
				for range calls {
					key := fmt.Sprint("k", rng.IntN(24))
					switch rng.IntN(8) {
					case 0:
						limits.set(key, still(1000+rng.Int64N(100)))
						invalidate(t, l, key)
					case 1:
						must(t)(l.AllowLimit(t.Context(), key, 1, still(77)))
					case 2:
						must(t)(l.Refund(t.Context(), key, 1))
					case 3:
						limits.set(key, hybridlimit.Unlimited())
					case 4:
						must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: key, N: 1}))
					default:
						ask(t, l, key, 1)
					}
					time.Sleep(time.Duration(rng.IntN(1e6)))
				}
			})
		}
		wg.Wait()
		for i := range 24 {
			key := fmt.Sprint("k", i)
			limits.set(key, still(int64(2000+i)))
			invalidate(t, l, key)
			if res := ask(t, l, key, 1); res.Limit != int64(2000+i) {
				t.Errorf("%s: %+v", key, res)
			}
		}
		shutdown(t, l)
		balance(t, l.Stats())
	})
}

// TestALaterAnswerWins checks questions that are under way during an Invalidate, of a key that comes into memory and of one that
// is there. Their answers may be of the time before, so the next call asks again.
func TestALaterAnswerWins(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			limits := newTable(still(100))
			gate := make(chan struct{})
			var slow atomic.Bool
			l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(500), hybrid.Config{MaxWait: time.Second, LimitFor: func(key string) hybridlimit.Limit {
				answer := limits.limitFor(key)
				if slow.CompareAndSwap(true, false) {
					<-gate
				}
				return answer
			}})
			time.Sleep(2300 * time.Millisecond)
			if known {
				ask(t, l, "k", 1)
				invalidate(t, l, "k")
			}
			slow.Store(true)
			var wg sync.WaitGroup
			wg.Go(func() { ask(t, l, "k", 1) }) // asks, and gets the old limit late
			synctest.Wait()
			limits.set("k", still(200))
			invalidate(t, l, "k")
			if known {
				if res := ask(t, l, "k", 1); res.Limit != 200 {
					t.Errorf("after Invalidate, with a question under way: limit %d, want 200", res.Limit)
				}
			}
			close(gate)
			wg.Wait()
			if res := ask(t, l, "k", 1); res.Limit != 200 {
				t.Errorf("known %v, after the old answer: limit %d, want 200", known, res.Limit)
			}
		})
	}
}

// TestAnAnswerThatComesLate checks that an answer does not replace that of a newer question. The first question takes longer than
// LimitRefresh.
func TestAnAnswerThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := newTable(still(1000))
		gate, slow := make(chan struct{}), atomic.Bool{}
		l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(500), hybrid.Config{MaxWait: time.Second, LimitFor: func(key string) hybridlimit.Limit {
			answer := limits.limitFor(key)
			if slow.CompareAndSwap(true, false) {
				<-gate
			}
			return answer
		}})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "k", 1)
		slow.Store(true)
		time.Sleep(time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() { ask(t, l, "k", 1) })
		synctest.Wait()
		limits.set("k", still(2000))
		time.Sleep(time.Minute)
		if res := ask(t, l, "k", 1); res.Limit != 2000 {
			t.Errorf("the newer answer: %+v", res)
		}
		close(gate)
		wg.Wait()
		asked := len(limits.questions("k"))
		if res := ask(t, l, "k", 1); res.Limit != 2000 || len(limits.questions("k")) != asked {
			t.Errorf("after the older answer: %+v, %d questions more", res, len(limits.questions("k"))-asked)
		}
	})
}
