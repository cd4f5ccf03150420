package global_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// cell is a key of redis-cell. It keeps the theoretical arrival time of GCRA: the time at which the key is unused again.
type cell struct{ tat time.Duration }

// cellReply is the reply of CL.THROTTLE, with its times before they are cut to seconds.
type cellReply struct {
	limited          bool
	limit, remaining int64
	retry, reset     time.Duration // retry: -1 if the call is not limited, or can never succeed
}

// throttle is CL.THROTTLE key maxBurst count period quantity at now: GCRA as the ATM Forum defines its virtual scheduling, with
// the reply of redis-cell. tolerance is the time by which a call may come too early.
func (c *cell) throttle(now time.Duration, maxBurst, count int64, period time.Duration, quantity int64) cellReply {
	interval := period / time.Duration(count)
	tolerance := interval * time.Duration(maxBurst+1)
	next := max(now, c.tat) + interval*time.Duration(quantity)
	r := cellReply{limit: maxBurst + 1, retry: -1}
	if early := next - tolerance - now; early > 0 {
		if r.limited = true; quantity <= maxBurst+1 {
			r.retry = early
		}
	} else {
		c.tat = next
	}
	r.reset = max(0, c.tat-now)
	r.remaining = int64((tolerance - r.reset) / interval)
	return r
}

// TestRedisCell replays random calls of CL.THROTTLE, for docs/migrating.md. Each figure of global's Result is that of the reply, to
// the microsecond.
func TestRedisCell(t *testing.T) {
	seed := testenv.Seed(t)
	for run := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, run))
			count, maxBurst := 1+rng.Int64N(60), rng.Int64N(20)
			period := time.Duration(count*(1+rng.Int64N(5_000_000))) * time.Microsecond
			text := fmt.Sprintf("%d/%v burst %d gcra", count, period, maxBurst+1)
			if run == 0 { // CL.THROTTLE key 15 30 60 1
				count, maxBurst, period, text = 30, 15, time.Minute, "30/min burst 16"
			}
			limit, err := hybridlimit.ParseLimit(text)
			if err != nil {
				t.Fatal(err)
			}
			l, err := global.New(redistest.NewBubble(t).Client(nil), limit, global.Config{Name: "cell"})
			if err != nil {
				t.Fatal(err)
			}
			began, theirs, last := time.Now(), cell{}, cellReply{}
			for i := range 200 {
				switch {
				case last.limited && last.retry > 0 && rng.IntN(2) == 0:
					time.Sleep(last.retry - time.Duration(rng.Int64N(2))*time.Microsecond) // just in time, or a moment too early
				default:
					time.Sleep(time.Duration(rng.Int64N(int64(period/time.Duration(count))*2)) / 1000 * 1000)
				}
				quantity := 1 + rng.Int64N(3)
				if rng.IntN(20) == 0 {
					quantity = maxBurst + 2
				}
				last = theirs.throttle(time.Since(began), maxBurst, count, period, quantity)
				res, err := l.AllowN(t.Context(), "k", quantity)
				if err != nil {
					t.Fatal(err)
				}
				retry := res.RetryAfter
				switch {
				case res.Allowed, retry == hybridlimit.Never:
					retry = -1
				}
				if mine := (cellReply{!res.Allowed, res.Limit, res.Remaining, retry, res.ResetAfter}); mine != last {
					t.Fatalf("%s: call %d for %d: %+v, redis-cell %+v", text, i, quantity, mine, last)
				}
			}
		})
	}
}
