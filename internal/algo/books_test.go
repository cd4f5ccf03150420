package algo_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// The books of a key record each unit on its way from the level to a grant or a lease, and back. They follow from the
// answers alone. So they show an error of the arithmetic that is the same in Lua and in Go, which no comparison of the
// two can show.

// heldLease is units of a lease that a process has not spent.
type heldLease struct {
	units int64
	gen   int64 // of the ledger, or the number of the window; 0: a free lease
	end   int64 // µs of Redis time
	lost  bool  // the ledger does not settle it any more
}

// demands are drawn for ops, in thousandths of a unit a second.
var demands = [4]int64{0, 3_000, 50_000, 1e9}

// bucketBooks is a fleet on one bucket or queue.
type bucketBooks struct {
	t     *testing.T
	rng   *rand.Rand
	limit hybridlimit.Limit
	b     algo.Bucket
	s     algo.State
	now   int64
	held  []heldLease
}

// op draws the op of a process with one of the leases, or with none. It returns the index of the lease, or -1.
func (k *bucketBooks) op() (op algo.Op, lease int) {
	rng, burst := k.rng, k.limit.BurstSize()
	op = algo.Op{
		Partial: rng.IntN(3) == 0, Div: 2 * rng.Int64N(4), Demand: demands[rng.IntN(4)], Broken: rng.IntN(20) == 0,
		MaxLife: []int64{0, 0, 0, 1, 2}[rng.IntN(5)],
	}
	for range rng.IntN(3) {
		op.Asks = append(op.Asks, 1+rng.Int64N([]int64{2, burst}[rng.IntN(2)]))
	}
	if rng.IntN(3) == 0 {
		op.Floor, op.Upper, op.Queued = rng.Int64N(burst/2+1), rng.IntN(2) == 0, rng.IntN(2) == 0
	}
	level := k.b.Load(k.s, k.now).Level
	if rng.IntN(3) == 0 {
		op.Owed = rng.Int64N(max(1, min(burst/2, (level+k.b.Cap)/k.b.Unit))) // not below the lowest level
	}
	lease = -1
	if n := len(k.held); n > 0 && !k.b.Queue {
		if h := k.held[rng.IntN(n)]; h.gen != 0 && !h.lost {
			lease = indexOf(k.held, h)
			op.Gen, op.Had, op.View = h.gen, h.units, algo.View{Level: level, At: k.s.Last, Born: k.s.Born}
			op.Keep = rng.Int64N(h.units + 1)
			op.Back = rng.Int64N(h.units - op.Keep + 1)
		}
	}
	return op, lease
}

// numberAt returns the number of a generation of 2^span seconds.
func numberAt(now, span int64) int64 {
	second := now / algo.Generation
	return second - second%(1<<span) + span<<40
}

func indexOf(all []heldLease, one heldLease) int {
	for i, h := range all {
		if h == one {
			return i
		}
	}
	return -1
}

// step runs one op, and compares the state and the answer with the books.
func (k *bucketBooks) step() {
	op, lease := k.op()
	b, before := k.b, k.b.Load(k.s, k.now)
	s, ans, dirty := b.Apply(k.s, op, k.now)
	age := slices.Index([]int64{numberAt(k.now, before.Span), numberAt(k.now-algo.Generation<<before.Span, before.Span)}, op.Gen)
	settled := age >= 0 && !op.Broken
	var back, out int64
	if out = before.Out[0] + before.Out[1]; settled {
		back, out = op.Back, out-op.Had+op.Keep
	}
	level := before.Level + (back-op.Owed)*b.Unit // before the grants
	took := ans.Granted + ans.Lease
	if ans.Gen != 0 {
		out += ans.Lease
	}
	fail := func(format string, args ...any) {
		k.t.Helper()
		k.t.Fatalf("%v: %+v\nof %+v\ngot %+v, %+v: "+format, append([]any{k.limit, op, before, ans, s}, args...)...)
	}
	switch {
	case ans.Refused != (op.Back > 0 && !settled):
		fail("want a settlement: %t", settled)
	case ans.Level != level-took*b.Unit:
		fail("want the level %d", level-took*b.Unit)
	case s.Since != before.Since+op.Owed+took-back:
		fail("want %d units since the birth", before.Since+op.Owed+took-back)
	case s.Out[0]+s.Out[1] != out:
		fail("want %d units in the ledger", out)
	case (took > 0 || op.Owed > 0 || settled) && !dirty:
		fail("the state is not written")
	case took > 0 && ans.Level < min(op.Floor*b.Unit, b.Cap/2):
		fail("below the floor")
	case op.Keep > 0 && settled && ans.Gen != numberAt(k.now, s.Span):
		fail("the kept units are not renewed")
	case s.Span < before.Span && out > ans.Lease:
		fail("the ledger forgets earlier")
	case ans.Refill != s.Span:
		fail("want %d for the length of a generation", s.Span)
	}
	if ans.Lease > 0 {
		k.checkLease(op, ans, level, out, fail)
	}
	k.s = s
	if lease >= 0 {
		k.held[lease].units -= op.Back // the rest of Had is spent, kept, or was not settled
		if settled {
			k.held[lease] = heldLease{units: op.Keep, gen: ans.Gen, end: k.now + ans.Life}
		} else {
			k.held[lease].lost = true
		}
	}
	if ans.Lease > 0 && !b.Queue {
		k.held = append(k.held, heldLease{units: ans.Lease, gen: ans.Gen, end: k.now + ans.Life})
	}
	k.checkBurst(fail)
}

// checkLease checks the size and the life of a lease. level is that before the grants.
func (k *bucketBooks) checkLease(op algo.Op, ans algo.Answer, level, out int64, fail func(string, ...any)) {
	b, burst := k.b, k.limit.BurstSize()
	free := (level-min(op.Floor*b.Unit, b.Cap/2))/b.Unit - ans.Granted
	most := min(free, max(free/max(op.Div, 1), burst/8, 1))
	for _, n := range op.Asks {
		if !op.Partial && ans.Granted < op.Asked() || op.Partial && ans.Granted == 0 && n > 0 {
			fail("a lease beside a refused ask")
		}
	}
	switch {
	case op.Div == 0 || op.Demand == 0:
		fail("no lease was wanted")
	case ans.Lease > most:
		fail("want a lease of %d at most", most)
	case b.Queue:
		if delay := b.WaitFull(level); ans.Delay != delay {
			fail("want the first unit after %d µs", delay)
		}
		wait := min(b.WaitFull(level-ans.Granted*b.Unit), algo.Generation)
		if float64(ans.Lease) > float64(op.Demand)*float64(wait)/1e9 {
			fail("more slots than the demand until the first one")
		}
	case ans.Gen != 0 && 2*out > burst:
		fail("more than half of the burst is leased")
	case ans.Gen != 0 && (ans.Lease+op.Keep)*1e9 > op.Demand*ans.Life:
		fail("more than the demand of its life")
	case ans.Gen == 0 && ans.Life*b.Refill > b.Cap-out*b.Unit-level:
		fail("the bucket is full before the lease ends")
	}
}

// checkBurst checks that the level and all leases that may be spent are the burst at most.
func (k *bucketBooks) checkBurst(fail func(string, ...any)) {
	sum := k.b.Load(k.s, k.now).Level
	for i := 0; i < len(k.held); i++ {
		if h := k.held[i]; k.now < h.end && h.units > 0 {
			sum += h.units * k.b.Unit
		} else {
			k.held = append(k.held[:i], k.held[i+1:]...)
			i--
		}
	}
	if sum > k.b.Cap {
		fail("the level and %+v are %d sub-units of %d", k.held, sum, k.b.Cap)
	}
}

// TestBooksOfABucket checks for random ops of a fleet on a bucket or a queue that each debited unit is granted, leased
// or owed, that a lease in the ledger is recorded there until it is spent, returned or forgotten, and that level and
// leases together never exceed the burst.
func TestBooksOfABucket(t *testing.T) {
	rng := testenv.Rand(t)
	limits := []hybridlimit.Limit{
		hybridlimit.TokenBucket(10, time.Second, 12), hybridlimit.TokenBucket(100, time.Second, 40),
		hybridlimit.TokenBucket(3, 7*time.Second, 30), hybridlimit.TokenBucket(1, time.Hour, 100), hybridlimit.LeakyQueue(100, time.Second, 60),
		hybridlimit.TokenBucket(10, time.Second, 60), hybridlimit.TokenBucket(100, time.Second, 1000),
	}
	leases := [2]int64{} // free, booked
	for range testenv.Runs(1_000, 100_000) {
		limit := limits[rng.IntN(len(limits))]
		k := &bucketBooks{t: t, rng: rng, limit: limit, b: algo.BucketOf(limit), now: start + rng.Int64N(algo.Generation)}
		for range 40 {
			k.now += rng.Int64N([]int64{1, 30_000, 300_000, 1_500_000}[rng.IntN(4)])
			k.step()
			for _, h := range k.held {
				leases[min(h.gen, 1)]++
			}
		}
	}
	t.Logf("%d free leases and %d in the ledger were held", leases[0], leases[1])
	if leases[0] < 100 || leases[1] < 1000 {
		t.Error("too few to check")
	}
}

// TestBooksOfAWindow checks for random ops of a fleet on a window that each window has counted the units that were
// granted, leased and owed in it, less those that were returned, that the next window begins with its leases, and that
// a lease belongs to its window.
func TestBooksOfAWindow(t *testing.T) {
	rng := testenv.Rand(t)
	leasedAhead := 0
	for range testenv.Runs(1_000, 100_000) {
		limit := hybridlimit.FixedWindow(1+rng.Int64N(60), time.Second)
		if rng.IntN(2) == 0 {
			limit.Algorithm = hybridlimit.AlgSlidingWindow
		}
		w, now := algo.WindowOf(limit), int64(start)
		total := map[int64]int64{} // by window, without carried units
		var s algo.State
		var since int64
		var held []heldLease
		for range 40 {
			now += rng.Int64N([]int64{1, 30_000, 300_000, 1_500_000}[rng.IntN(4)])
			before := w.Load(s, now)
			op := algo.Op{
				Partial: rng.IntN(3) == 0, Div: 2 * rng.Int64N(4), Demand: demands[rng.IntN(4)], Ahead: rng.IntN(3) == 0,
				Broken: rng.IntN(20) == 0, View: algo.View{Born: s.Born, Level: w.Level(before, now), At: now},
			}
			for range rng.IntN(3) {
				op.Asks = append(op.Asks, 1+rng.Int64N(limit.Rate))
			}
			if rng.IntN(3) == 0 {
				op.Floor = rng.Int64N(limit.Rate/2 + 1)
			}
			if n := len(held); n > 0 && rng.IntN(3) == 0 {
				h := held[rng.IntN(n)]
				held[indexOf(held, h)].units = 0
				op.Gen, op.Back = h.gen, 1+rng.Int64N(h.units)
			}
			held = unspent(held, before.Win-2)
			win, owedIn := w.Number(now), w.Number(now)
			if rng.IntN(4) == 0 { // down to a rate of debt, in this window or in the last one
				if op.Owed = rng.Int64N(max(1, (w.Level(before, now)+w.Cap)/w.Unit)); !w.Sliding && rng.IntN(2) == 0 {
					op.Owed, op.Win, owedIn = rng.Int64N(2*limit.Rate-max(before.Prev, before.Cur)+1), win-1, win-1
				}
			}
			next, ans, dirty := w.Apply(s, op, now)
			s = next
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("%v: %+v\nof %+v\ngot %+v, %+v: "+format, append([]any{limit, op, before, ans, s}, args...)...)
			}
			taken := op.Back > 0 && !op.Broken && op.Gen >= win-1
			total[owedIn] += op.Owed
			total[win] += ans.Granted
			since += op.Owed + ans.Granted + ans.Lease
			of := win
			if op.Ahead {
				of++
			}
			total[of] += ans.Lease
			if taken {
				total[op.Gen] -= op.Back
				since -= op.Back
			}
			var cur, last int64
			for at := w.Number(start) - 1; at <= win; at++ {
				cur, last = total[at]+carried(w, cur), cur
			}
			most := limit.Rate - min(op.Floor, limit.Rate/2)
			switch took := ans.Granted + ans.Lease; {
			case ans.Refused != (op.Back > 0 && !taken):
				fail("want a settlement: %t", taken)
			case s.Cur != cur || s.Next != total[win+1] || s.Prev != last:
				fail("want %d, %d of the last window and %d of the next", cur, last, total[win+1])
			case s.Since != since:
				fail("want %d units since the birth", since)
			case (took > 0 || taken || op.Owed > 0) && !dirty:
				fail("the state is not written")
			case (ans.Granted > 0 || took > 0 && of == win) && s.Cur > most || of > win && ans.Lease > 0 && s.Next > most:
				fail("below the floor")
			case w.Sliding && took > 0 && s.Cur+s.Next > limit.Rate:
				fail("the estimate at the border is above the rate")
			case (ans.Granted > 0 || took > 0 && of == win) && w.Level(s, now) < 0:
				fail("the level is negative")
			case !w.Sliding && of > win && ans.Lease > 0 && s.Next+max(0, s.Cur-limit.Rate) > most:
				fail("the next window begins above its rate")
			}
			if ans.Lease == 0 {
				continue
			}
			if of > win {
				leasedAhead++
			}
			free := most - s.Cur + ans.Lease
			share := (limit.Rate - (limit.Rate+7)/8) / max(op.Div/2, 1)
			ahead := share
			if w.Sliding { // the share is one of the units that this window does not need
				ahead = limit.Rate / max(op.Div/2, 1)
			}
			switch {
			case op.Div == 0 || op.Demand == 0:
				fail("no lease was wanted")
			case of == win && ans.Granted < op.Asked() && (!op.Partial || ans.Granted == 0):
				fail("a lease beside a refused ask")
			case of > win && (ans.Gen != of || ans.Lease > ahead):
				fail("want a lease of window %d, and %d units at most", of, ahead)
			case of == win && ans.Lease > max(free/op.Div, share/2):
				fail("want a lease of %d at most", max(free/op.Div, share/2))
			case of == win && (ans.Life > ans.Ends || now+ans.Ends != (win+1)*w.Period):
				fail("the lease outlives its window")
			}
			held = append(held, heldLease{units: ans.Lease, gen: of})
		}
	}
	if t.Logf("%d leases of the next window", leasedAhead); leasedAhead < 300 {
		t.Error("too few to check")
	}
}

// carried returns the units with which a window begins after one that has counted so many.
func carried(w algo.Window, counted int64) int64 {
	if w.Sliding {
		return 0
	}
	return max(0, counted-w.Rate)
}

// unspent drops the leases that have no units, and those of windows before one.
func unspent(all []heldLease, win int64) (kept []heldLease) {
	for _, h := range all {
		if h.units > 0 && h.gen > win {
			kept = append(kept, h)
		}
	}
	return kept
}
