package local

import (
	"context"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

// naive is the definition of the queue, the windows and the log, in fractions and with a
// list of all admissions. (The buckets are compared with ideal, since they round.)
type naive struct {
	limit hybridlimit.Limit
	epoch time.Duration // Unix time of shard time 0
	list  []admission
}

type admission struct {
	at time.Duration
	n  int64
}

func ratio(a, b int64) *big.Rat { return big.NewRat(a, b) }

// window returns the number of the window at a time, and the elapsed part of it.
func (o *naive) window(at time.Duration) (int64, *big.Rat) {
	unix := new(big.Int).Add(big.NewInt(int64(o.epoch)), big.NewInt(int64(at)))
	no, into := new(big.Int).DivMod(unix, big.NewInt(int64(o.limit.Period)), new(big.Int))
	return no.Int64(), new(big.Rat).SetFrac(into, big.NewInt(int64(o.limit.Period)))
}

// used returns the units that count at a time not before the last admission.
func (o *naive) used(at time.Duration) *big.Rat {
	sum, next := new(big.Rat), new(big.Rat)
	if o.limit.Algorithm == hybridlimit.AlgCalendarWindow {
		return ratio(o.usedInPeriod(at), 1)
	}
	now, f := o.window(at)
	for _, a := range o.list {
		n := ratio(a.n, 1)
		switch o.limit.Algorithm {
		case hybridlimit.AlgLeakyQueue:
			if t := ratio(int64(a.at), 1); next.Cmp(t) < 0 {
				next = t
			}
			next = new(big.Rat).Add(next, n.Mul(n, ratio(int64(o.limit.Period), o.limit.Rate)))
		case hybridlimit.AlgFixedWindow:
			if w, _ := o.window(a.at); w == now {
				sum.Add(sum, n)
			}
		case hybridlimit.AlgSlidingWindow:
			switch w, _ := o.window(a.at); w {
			case now:
				sum.Add(sum, n)
			case now - 1:
				sum.Add(sum, n.Mul(n, new(big.Rat).Sub(ratio(1, 1), f)))
			}
		case hybridlimit.AlgSlidingLog:
			if at-a.at < o.limit.Period {
				sum.Add(sum, n)
			}
		}
	}
	if o.limit.Algorithm == hybridlimit.AlgLeakyQueue {
		if left := next.Sub(next, ratio(int64(at), 1)); left.Sign() > 0 {
			sum.Mul(left, ratio(o.limit.Rate, int64(o.limit.Period)))
		}
	}
	return sum
}

// usedInPeriod returns the units of the period of a calendar, or of the period that began with the first use after the
// last one.
func (o *naive) usedInPeriod(at time.Duration) (units int64) {
	begin, end := time.Duration(math.MinInt64), time.Duration(math.MinInt64)
	if o.limit.Calendar.Unit != hybridlimit.FromUse {
		from, until, err := o.limit.Calendar.Bounds(time.Unix(0, int64(o.epoch+at)))
		if err != nil {
			panic(err)
		}
		begin, end = time.Duration(from.UnixNano())-o.epoch, time.Duration(until.UnixNano())-o.epoch
	}
	for _, a := range o.list {
		if o.limit.Calendar.Unit == hybridlimit.FromUse && a.at >= end {
			begin, end, units = a.at, a.at+o.limit.Period, 0
		}
		if a.at >= begin {
			units += a.n
		}
	}
	if at >= end {
		return 0
	}
	return units
}

func (o *naive) admits(at time.Duration, n int64) bool {
	used := o.used(at)
	return used.Add(used, ratio(n, 1)).Cmp(ratio(o.limit.BurstSize(), 1)) <= 0
}

// starts reports whether a call at a time could start d later, because the units before
// it are served by then.
func (o *naive) starts(at, d time.Duration) bool {
	wait := o.used(at)
	wait.Mul(wait, ratio(int64(o.limit.Period), o.limit.Rate))
	return wait.Cmp(ratio(int64(d), 1)) <= 0
}

// judge compares an answer at a time with the list.
func (o *naive) judge(t *rapid.T, at time.Duration, n int64, res hybridlimit.Result) {
	if res.Allowed != o.admits(at, n) {
		t.Fatalf("%d with %v used: %+v", n, o.used(at), res)
	}
	if d := res.Delay; res.Allowed {
		queue := o.limit.Algorithm == hybridlimit.AlgLeakyQueue
		if queue && (!o.starts(at, d) || d > 0 && o.starts(at, d-1)) || !queue && d != 0 {
			t.Fatalf("delay %v with %v used", d, o.used(at))
		}
	} else if d := res.RetryAfter; !o.admits(at+d, n) || o.admits(at+d-1, n) {
		t.Fatalf("RetryAfter %v is not exact for %d, %v used: %v then, %v before", d, n, o.used(at), o.used(at+d), o.used(at+d-1))
	}
	if res.Granted > 0 {
		o.list = append(o.list, admission{at, n})
	}
	o.judgeState(t, at, res)
}

// judgeState compares the common fields of every answer with the list.
func (o *naive) judgeState(t *rapid.T, at time.Duration, res hybridlimit.Result) {
	if res.Remaining > 0 && !o.admits(at, res.Remaining) || res.Remaining < res.Limit && o.admits(at, res.Remaining+1) {
		t.Fatalf("Remaining %d with %v used of %d", res.Remaining, o.used(at), res.Limit)
	}
	if d := res.ResetAfter; o.used(at+d).Sign() != 0 || d > 0 && o.used(at+d-1).Sign() == 0 {
		t.Fatalf("ResetAfter %v, %v used now, %v then", d, o.used(at), o.used(at+d))
	}
}

// listed are the algorithms that naive knows.
var listed = []hybridlimit.Algorithm{
	hybridlimit.AlgLeakyQueue, hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow, hybridlimit.AlgSlidingLog,
	hybridlimit.AlgCalendarWindow,
}

// anyStart draws a time at which a limiter is started.
func anyStart(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(-1e9, 4e9).Draw(t, "start"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
}

// TestAgainstNaiveLists drives the exact algorithms through random times and costs, and
// through the borders that the answers name. It compares every answer with the list, to
// the nanosecond.
func TestAgainstNaiveLists(t *testing.T) {
	for _, algorithm := range listed {
		t.Run(algorithm.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { againstNaive(t, algorithm) })
		})
	}
}

func againstNaive(t *rapid.T, algorithm hybridlimit.Algorithm) {
	limit := anyLimitOf(t, algorithm)
	start := anyStart(t)
	l := newLimiter(limit, Config{}.withDefaults(limit), 1, start)
	o := &naive{limit: limit, epoch: time.Duration(start.UnixNano())}
	var at time.Duration
	var last hybridlimit.Result
	var err error
	for range rapid.IntRange(1, 50).Draw(t, "calls") {
		pause := rapid.OneOf(
			rapid.Custom(func(t *rapid.T) time.Duration { return anyPause(t, limit) }),
			rapid.Map(rapid.Int64Range(-1, 1), func(d int64) time.Duration { return max(0, last.RetryAfter+time.Duration(d)) }),
			rapid.Map(rapid.Int64Range(-1, 1), func(d int64) time.Duration { return max(0, last.ResetAfter+time.Duration(d)) }),
		).Draw(t, "step")
		if pause > 100*365*24*time.Hour-at {
			break
		}
		at += pause
		now := start.Add(at)
		n := logInt(t, limit.BurstSize(), "n")
		switch rapid.SampledFrom([]string{"allow", "allow", "peek", "at most", "cancel"}).Draw(t, "verb") {
		case "allow":
			last = ask(t, l, now, "k", n)
			o.judge(t, at, n, last)
		case "peek":
			last, err = l.when(now).PeekN(context.Background(), "k", n)
			o.judge(t, at, n, last)
		case "at most":
			last, err = l.atMostAt(now, "k", n, "")
			o.judge(t, at, max(last.Granted, 1), last)
			if last.Allowed && last.Granted < n && o.admits(at, 1) {
				t.Fatalf("%d of %d granted, although more units are there: %+v", last.Granted, n, last)
			}
		case "cancel": // at once, so that a queue gives the units back too
			var held holding
			last, held, err = l.when(now).book(context.Background(), "k", n, hybridlimit.Never)
			before := len(o.list)
			o.judge(t, at, n, last)
			if last.Allowed {
				l.when(now).cancel("k", held)
			}
			o.list = o.list[:before]
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// anyLimitOf draws a limit of an algorithm.
func anyLimitOf(t *rapid.T, algorithm hybridlimit.Algorithm) hybridlimit.Limit {
	return rapid.Custom(func(t *rapid.T) hybridlimit.Limit {
		limit := anyLimit(t)
		limit.Algorithm = algorithm
		if windowed(algorithm) {
			limit.Burst = 0
		}
		if algorithm == hybridlimit.AlgCalendarWindow {
			limit.Calendar = anyCalendar(t)
			if limit.Calendar.Unit != hybridlimit.FromUse {
				limit.Period = 0
			}
		}
		return limit
	}).Filter(func(l hybridlimit.Limit) bool { return check(l, Config{}) == nil }).Draw(t, "limit of")
}

// anyCalendar draws a calendar whose zones change their clocks, or skip a date.
func anyCalendar(t *rapid.T) hybridlimit.Calendar {
	c := hybridlimit.Calendar{Unit: rapid.SampledFrom([]hybridlimit.CalendarUnit{
		hybridlimit.Day, hybridlimit.Day, hybridlimit.Week, hybridlimit.Month, hybridlimit.Year, hybridlimit.FromUse,
	}).Draw(t, "unit")}
	switch c.Unit {
	case hybridlimit.Week:
		c.Anchor = rapid.Uint16Range(0, 7).Draw(t, "weekday")
	case hybridlimit.Month:
		c.Anchor = rapid.Uint16Range(0, 31).Draw(t, "day")
	case hybridlimit.Year:
		c.Anchor = rapid.SampledFrom([]uint16{0, 101, 229, 401, 1231}).Draw(t, "date")
	}
	if c.Unit != hybridlimit.FromUse {
		c.Zone = rapid.SampledFrom([]string{"", "Europe/Berlin", "America/Havana", "Pacific/Apia", "Asia/Kathmandu"}).Draw(t, "zone")
	}
	return c
}

func windowed(a hybridlimit.Algorithm) bool { return a >= hybridlimit.AlgFixedWindow }
