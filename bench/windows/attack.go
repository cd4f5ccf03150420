package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// attack returns the calls of the strongest attack: the Rate at the very end of a window, as many calls at once in the
// next window, and then one call each ms, for three minutes. The window that begins at epoch gets only the burst.
func attack() []int64 {
	const each = 100 // µs
	border := epoch + minute
	at := run(nil, border-rate*each, 2*rate, each)
	return run(at, border+rate*each, (3*minute-rate*each)/1000, 1000)
}

// victim is a limit under attack. bound is the most that it admits in any minute.
type victim struct {
	name  string
	limit hybridlimit.Limit
	bound int64
}

var victims = []victim{
	{"fixed window", hybridlimit.FixedWindow(rate, time.Minute), 2 * rate},
	{"sliding window", hybridlimit.SlidingWindow(rate, time.Minute), 2*rate - 1},
	slidingLog,
	{"token bucket", hybridlimit.TokenBucket(rate, time.Minute, rate), 2 * rate},
}

var slidingLog = victim{"sliding log", hybridlimit.SlidingLog(rate, time.Minute), rate}

// admitted returns the times of the admitted calls, in µs since the epoch.
func (v victim) admitted(at []int64) (times []int64) {
	allow := counted(algo.LimitOf(v.limit))
	if v.limit.Algorithm == hybridlimit.AlgSlidingLog {
		allow = logged()
	}
	for _, now := range at {
		if allow(now) {
			times = append(times, now-epoch)
		}
	}
	return times
}

func counted(l algo.Limit) func(now int64) bool {
	apply := applied(l)
	return func(now int64) bool { return apply(now).Granted > 0 }
}

// applied returns the answers of a new limiter to calls for a unit.
func applied(l interface {
	Apply(s algo.State, op algo.Op, now int64) (algo.State, algo.Answer, bool)
},
) func(now int64) algo.Answer {
	var s algo.State
	one := []int64{1}
	return func(now int64) algo.Answer {
		next, ans, dirty := l.Apply(s, algo.Op{Asks: one}, now)
		if dirty {
			s = next
		}
		return ans
	}
}

func logged() func(now int64) bool {
	var log trail
	return func(now int64) bool {
		if log.count(now) >= rate {
			return false
		}
		log.add(now)
		return true
	}
}

// most returns the largest number of these times within a span of d.
func most(times []int64, d int64) (n int) {
	first := 0
	for i, t := range times {
		for t-times[first] >= d {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// attacks returns the table of the attack's results.
func attacks() string {
	var b strings.Builder
	benchkit.Head(&b, 1, "algorithm under attack", "most in 20 ms", "most in a second", "most in a minute")
	for _, v := range victims {
		times := v.admitted(attack())
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", v.name,
			most(times, second/50), most(times, second), most(times, minute))
	}
	return b.String()
}
