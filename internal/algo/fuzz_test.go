package algo_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// fold maps a value of the fuzzer into a range. Values inside the range stay.
func fold(n, low, high int64) int64 {
	if low <= n && n <= high {
		return n
	}
	return low + int64(uint64(n)%uint64(high-low+1))
}

// limitOf makes a limit from the fuzzer's values, and reports whether it is valid.
func limitOf(a hybridlimit.Algorithm, rate, period, burst int64) (hybridlimit.Limit, bool) {
	l := hybridlimit.Limit{Algorithm: a, Rate: fold(rate, 1, 1<<51), Period: time.Duration(fold(period, 1, 1<<50)) * time.Microsecond}
	if a <= hybridlimit.AlgLeakyQueue {
		edge := edgeBurst(l.Rate, l.Period)
		if edge < 1 {
			return l, false
		}
		l.Burst = fold(burst, 1, edge)
	}
	return l, l.Validate() == nil
}

// The units left in a bucket never increase when its limit changes.
func FuzzRescale(f *testing.F) {
	f.Add(int64(100), int64(1_000_000), int64(200), int64(1), int64(86_400_000_000), int64(10), int64(123_456))
	f.Add(int64(1), int64(86_400_000_000), int64(50_000), int64(10_000_000), int64(1_000_000), int64(1_000_000), int64(1)<<52)
	f.Add(int64(3), int64(7_000_000), int64(2), int64(7), int64(3_000_000), int64(2), int64(-5_000_000))
	f.Add(int64(1), int64(1)<<49, int64(7), int64(999_983), int64(999_979), int64(1), int64(-1))
	f.Fuzz(func(t *testing.T, rate1, period1, burst1, rate2, period2, burst2, level int64) {
		l1, ok1 := limitOf(hybridlimit.AlgTokenBucket, rate1, period1, burst1)
		l2, ok2 := limitOf(hybridlimit.AlgLeakyQueue, rate2, period2, burst2)
		if !ok1 || !ok2 {
			return
		}
		from, to := algo.BucketOf(l1), algo.BucketOf(l2)
		level = fold(level, -from.Cap, from.Cap)
		got := to.Rescale(level, from.Unit)
		if got < -to.Cap || got > to.Cap {
			t.Fatalf("level %d of %v became %d of %v, out of range", level, l1, got, l2)
		}
		before, after := units(from, level), units(to, got)
		if got > -to.Cap && after.Cmp(before) > 0 {
			t.Errorf("%v units of %v became %v of %v", before, l1, after, l2)
		}
		if lost := new(big.Rat).Sub(before, after); got < to.Cap && lost.Cmp(ratio(3, to.Unit)) >= 0 {
			t.Errorf("%v units of %v became %v of %v: three sub-units lost or more", before, l1, after, l2)
		}
		if whole := algo.ScaleOf(l2).Units(got); whole < 0 || got >= 0 && ratio(whole, 1).Cmp(after) > 0 || ratio(whole+1, 1).Cmp(after) <= 0 {
			t.Errorf("%v units of %v rounded to %d whole units", after, l2, whole)
		}
	})
}

// The usage of a window counts in a window of another period. It is never less there, and
// less than one unit more (three units for very large counts).
func FuzzConvertWindow(f *testing.F) {
	f.Add(true, int64(100), int64(1_000_000), int64(60_000_000), int64(70), int64(90), int64(start)+400_000)
	f.Add(true, int64(1)<<51, int64(1)<<50, int64(1), int64(1)<<52, int64(1)<<52, int64(1))
	f.Add(true, int64(1_000_000), int64(86_400_000_000), int64(3_600_000_000), int64(3), int64(999_999), int64(start)+7)
	f.Add(false, int64(10), int64(1_000_000), int64(60_000_000), int64(17), int64(20), int64(start)+999_999)
	f.Fuzz(func(t *testing.T, sliding bool, rate, period, other, cur, prev, now int64) {
		a := hybridlimit.AlgFixedWindow
		if sliding {
			a = hybridlimit.AlgSlidingWindow
		}
		from, ok1 := limitOf(a, rate, period, 0)
		to, ok2 := limitOf(a, rate, other, 0)
		if !ok1 || !ok2 {
			t.Fatalf("%v or %v is not valid", from, to)
		}
		rate, period, other = from.Rate, from.Period.Microseconds(), to.Period.Microseconds()
		if period == other {
			return
		}
		cur, prev, now = fold(cur, 0, 2*rate), fold(prev, 0, 2*rate), fold(now, 1, 1<<52)
		w := algo.WindowOf(to)
		s := algo.State{Kind: algo.KindOf(a), Born: 1, Period: period, Win: now / period, Cur: cur, Prev: prev}
		used, more := ratio(cur, 1), ratio(1, 1)
		if sliding {
			product := new(big.Rat).Mul(ratio(prev, 1), ratio(period-now%period, 1))
			if product.Cmp(ratio(1<<53, 1)) >= 0 {
				more = ratio(3, 1)
			}
			used.Add(used, product.Quo(product, ratio(period, 1)))
		}
		got := w.Load(s, now)
		if got.Prev != 0 || got.Win != now/other || got.Period != other {
			t.Fatalf("%v at %d as of %v: %+v", from, now, to, got)
		}
		// A window counts at most 2·Rate: a debt of one Rate.
		if got.Cur < 2*rate && ratio(got.Cur, 1).Cmp(used) < 0 {
			t.Errorf("%v units used of %v became only %d of %v", used, from, got.Cur, to)
		}
		if new(big.Rat).Sub(ratio(got.Cur, 1), used).Cmp(more) >= 0 {
			t.Errorf("%v units used of %v became %d of %v: at least %v units more", used, from, got.Cur, to, more)
		}
	})
}

// kept is the state of a key under a limit of any algorithm.
type kept struct {
	limit hybridlimit.Limit
	state algo.State
	log   []algo.Entry
}

func (k kept) apply(op algo.Op, now int64) (kept, algo.Answer) {
	var ans algo.Answer
	if k.limit.Algorithm == hybridlimit.AlgSlidingLog {
		k.log, ans, _ = algo.LogOf(k.limit).Apply(k.log, op, now)
	} else {
		k.state, ans, _ = algo.LimitOf(k.limit).Apply(k.state, op, now)
	}
	return k, ans
}

// Under any limit, an op gets at most the burst and the level stays in range. The same op
// is granted after Retry, and is not granted a µs earlier.
func FuzzApply(f *testing.F) {
	f.Add(uint8(0), int64(100), int64(1_000_000), int64(200), int64(3), int64(150), int64(7))
	f.Add(uint8(2), int64(10), int64(1_000_000), int64(21), int64(1), int64(30), int64(99_999))
	f.Add(uint8(3), int64(5), int64(60_000_000), int64(0), int64(5), int64(9), int64(1))
	f.Add(uint8(4), int64(1_000_000), int64(86_400_000_000), int64(0), int64(999_999), int64(1_500_000), int64(86_399_999_999))
	f.Add(uint8(5), int64(5), int64(60_000_000), int64(0), int64(2), int64(9), int64(1_000_000))
	f.Fuzz(func(t *testing.T, algorithm uint8, rate, period, burst, n, owed, later int64) {
		l, ok := limitOf(hybridlimit.Algorithm(algorithm%6), rate, period, burst)
		if !ok {
			return
		}
		n, owed, later = fold(n, 1, 2*l.BurstSize()), fold(owed, 0, 1<<53), fold(later, 0, 1<<50)
		k := kept{limit: l}
		k, _ = k.apply(algo.Op{Owed: owed, Asks: []int64{n}}, start)
		now := start + later
		next, ans := k.apply(algo.Op{Asks: []int64{n}}, now)
		full := algo.ScaleOf(l).Bucket.Cap
		if ans.Granted != 0 && ans.Granted != n || ans.Granted > l.BurstSize() || ans.Level > full || ans.Level < -full {
			t.Fatalf("%v after %d owed: %+v", l, owed, ans)
		}
		if n > l.BurstSize() {
			if ans.Granted != 0 || ans.Retry != algo.Never {
				t.Fatalf("%v: %d units: %+v", l, n, ans)
			}
			return
		}
		if ans.Granted == n {
			return
		}
		if ans.Retry < 1 || ans.Retry >= algo.Never {
			t.Fatalf("%v: denied with a retry of %d µs: %+v", l, ans.Retry, ans)
		}
		if _, early := next.apply(algo.Op{Asks: []int64{n}}, now+ans.Retry-1); early.Granted != 0 {
			t.Errorf("%v: granted a µs before the retry of %d µs", l, ans.Retry)
		}
		if _, late := next.apply(algo.Op{Asks: []int64{n}}, now+ans.Retry); late.Granted != n {
			t.Errorf("%v: denied after the retry of %d µs: %+v", l, ans.Retry, late)
		}
	})
}
