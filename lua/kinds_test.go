package lua_test

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// diffLimits are the limits of the differential run: common ones, some whose unit is not a
// whole number of µs, and some with a burst at the end of the exact range.
var diffLimits = []hybridlimit.Limit{
	hybridlimit.PerSecond(10),
	hybridlimit.TokenBucket(1000, time.Second, 20),
	hybridlimit.TokenBucket(1, 24*time.Hour, 1),
	hybridlimit.TokenBucket(1, 24*time.Hour, 52_124), // edge: unit 8.64e10
	hybridlimit.PerSecond(10_000_000),
	hybridlimit.TokenBucket(10_000_000, time.Second, 1<<52-5), // edge: unit 1, refill 10
	hybridlimit.TokenBucket(3, 7*time.Second, 2),
	hybridlimit.TokenBucket(999_983, time.Hour, 1_250_999), // edge: a prime rate
	hybridlimit.TokenBucket(7, time.Second, 500),
	hybridlimit.TokenBucket(1, time.Microsecond, 1000),
	hybridlimit.LeakyBucket(100, time.Minute, 30),
}

var diffQueues = []hybridlimit.Limit{
	hybridlimit.LeakyQueue(10, time.Second, 0),
	hybridlimit.LeakyQueue(1, 24*time.Hour, 3),
	hybridlimit.LeakyQueue(10_000_000, time.Second, 5000),
	hybridlimit.LeakyQueue(3, 7*time.Second, 2),
	hybridlimit.LeakyQueue(999_983, time.Hour, 1_250_999), // edge
}

// diffWindows returns limits of windows and logs: with ticks of 1 µs and more, and with
// windows of a µs and of months.
func diffWindows(of func(int64, time.Duration) hybridlimit.Limit) []hybridlimit.Limit {
	return []hybridlimit.Limit{
		of(10, time.Second), of(1, 24*time.Hour), of(1_000_000, 24*time.Hour), of(10_000_000, time.Second),
		of(3, 7*time.Second), of(1000, time.Minute), of(5, time.Microsecond), of(40, 90*24*time.Hour),
		of(999_983, time.Hour), of(1_000_000_000, 24*time.Hour),
	}
}

// kindRun is a differential run over the limits of one algorithm. saw lists the effects
// that its ops must have.
type kindRun struct {
	name   string
	limits []hybridlimit.Limit
	saw    []string
}

var kindRuns = []kindRun{
	{"bucket", diffLimits, slices.Concat(plainWays, payWays, []string{
		"granted", "leased", "refused", "never", "debt", "floor", "frozen", "other life", "booked", "renewed", "not renewed", "returned", "not returned", "long generations", "longer generations", "settled in a long generation",
		"turn", "rolled back", "delayed", "refunded", "observed", "too old", "reset", "void view", "all", "nothing", "left", "leased above a floor", "away",
	})},
	{"queue", diffQueues, slices.Concat(plainWays, []string{
		"granted", "leased", "refused", "never", "debt", "floor", "frozen", "other life", "turn", "rolled back", "delayed", "refunded",
		"observed", "too old", "reset", "void view", "all", "nothing", "left", "leased above a floor", "away",
	})},
	{"fixed", diffWindows(hybridlimit.FixedWindow), slices.Concat(plainWays, []string{
		"granted", "leased", "refused", "never", "debt", "floor", "other life", "rolled back", "refunded", "observed", "too old", "reset", "void view", "returned", "not returned",
		"dropped", "late", "carried", "of the next window", "leased ahead", "returned ahead", "begun with leases", "all", "nothing", "left", "leased above a floor",
	})},
	{"sliding", diffWindows(hybridlimit.SlidingWindow), slices.Concat(plainWays, []string{
		"granted", "leased", "refused", "never", "debt", "other life", "rolled back", "refunded", "observed", "too old", "reset", "void view", "returned", "not returned",
		"dropped", "late", "fading", "of the next window", "leased ahead", "returned ahead", "begun with leases", "all", "nothing", "left", "leased above a floor",
	})},
	{"log", diffWindows(hybridlimit.SlidingLog), []string{"granted", "refused", "never", "debt", "floor", "refunded", "reset", "frozen", "refunded of a call", "all", "nothing"}},
	{"calendar", diffCalendars, []string{
		"granted", "leased", "refused", "never", "debt", "floor", "other life", "rolled back", "refunded", "observed", "too old", "reset", "void view", "returned", "not returned",
		"dropped", "leased ahead", "returned ahead", "all", "nothing", "left", "leased above a floor", "closed", "another begin", "another end", "earlier begin",
	}},
	{"mixed", slices.Concat(diffLimits[:4], diffQueues[:3], diffWindows(hybridlimit.FixedWindow)[:3],
		diffWindows(hybridlimit.SlidingWindow)[:3], diffWindows(hybridlimit.SlidingLog)[:3], diffCalendars[:3]), []string{"another kind", "all", "nothing"}},
}
