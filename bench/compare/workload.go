package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// workload describes the keys that are asked for, and their limit.
type workload struct {
	Name  string
	Title string
	About string
	Keys  int
	Limit hybridlimit.Limit
	Over  int64 // if positive, the limit is this fraction of the rival's own speed, instead of Limit
	Zipf  bool
	Fresh bool // every call is for a key that the limiter has forgotten, or never had
}

// far is a limit that no rival reaches.
var far = hybridlimit.PerSecond(1_000_000_000)

const (
	hot     = "hot"
	denied  = "denied"
	zipf    = "zipf"
	uniform = "uniform"
	churn   = "churn"
	over    = "over"
)

var workloads = []workload{
	{
		Name: hot, Title: "One hot key, far below its limit", Keys: 1, Limit: far,
		About: "One key with a limit of 10⁹ a second: every call is admitted.",
	},
	{
		Name: denied, Title: "One hot key, over its limit", Keys: 1, Limit: hybridlimit.PerHour(1),
		About: "One key with a limit of one unit an hour (go-zero: one a second, its minimum): all calls but the first are denied.",
	},
	{
		Name: zipf, Title: "Zipf over 100 000 keys", Keys: 100_000, Limit: far, Zipf: true,
		About: "100 000 keys, all in memory, drawn by Zipf's law (s = 1.1). The limit of each is 10⁹ a second.",
	},
	{
		Name: uniform, Title: "Uniform over 1 000 000 keys", Keys: 1_000_000, Limit: far,
		About: "1 000 000 keys, all in memory, each drawn with the same probability. The limit of each is 10⁹ a second. " +
			"Every call is for a key that was not used for a while. This is the worst case for caches, and for a limiter that reports each key to others.",
	},
	{
		Name: churn, Title: "Unique keys: each replaces another", Keys: 100_000, Limit: far, Fresh: true,
		About: "Limiters with a bound of 100 000 keys are full, and every call is for a key that they do not hold. The limit of each is 10⁹ a second. " +
			"Limiters without a bound do not take part. hybrid is in [REDIS.md](REDIS.md), because a key that it replaces must have paid its debt to Redis.",
	},
	{
		Name: over, Title: "Twenty times the limit: 95 % denied", Keys: 20, Limit: far, Over: 20,
		About: "20 keys, each drawn with the same probability. The limit of all keys together is a twentieth of the decisions that the limiter makes in a second, " +
			"counted in periods of 100 ms. So each limiter has its own limit. Callers ask as fast as they are answered. " +
			"A limiter that waits for Redis, instead of denying units that Redis may have, is asked less and denies less.",
	},
}

// single reports whether limiters without keys can take part.
func (w workload) single() bool { return w.Keys == 1 }

// scaled returns the workload with fewer keys, for tests of this program.
func (w workload) scaled(by int) workload {
	w.Keys = max(w.Keys/by, min(w.Keys, 20))
	return w
}

// levels returns the numbers of goroutines.
func levels() []int { return slices.Compact([]int{1, runtime.GOMAXPROCS(0), 64}) }

// keyName returns a key of 20 bytes, in new memory each time.
func keyName(i int) string { return fmt.Sprintf("%020d", i) }

// drawn is the number of draws before they repeat. It is more than the number
// of keys, so that most keys occur, and too large for a processor cache.
const drawn = 1 << 20

// freshTimes is the number of keys before they repeat, per key that a limiter holds, if each has to be new.
const freshTimes = 10

// sequence returns the keys of the calls, in order. The strings are not those that a limiter has stored, so a
// comparison must read their bytes, as with keys from requests.
func (w workload) sequence() []string {
	if w.Keys == 1 {
		return slices.Repeat([]string{keyName(0)}, maxChunk)
	}
	if w.Fresh {
		names := make([]string, w.Keys*freshTimes, w.Keys*freshTimes+maxChunk)
		for i := range names {
			names[i] = keyName(w.Keys + i) // the first Keys keys fill the limiter
		}
		return append(names, names[:maxChunk]...) // so that a chunk can begin at each of them
	}
	names := make([]string, w.Keys)
	for i := range names {
		names[i] = keyName(i)
	}
	rng := rand.New(rand.NewPCG(1, uint64(w.Keys)))
	draw := func() int { return rng.IntN(w.Keys) }
	if w.Zipf {
		z := rand.NewZipf(rng, 1.1, 1, uint64(w.Keys-1))
		where := rng.Perm(w.Keys) // so that the first keys to be stored are not the most used ones
		draw = func() int { return where[z.Uint64()] }
	}
	seq := make([]string, min(drawn, max(maxChunk, w.Keys*64)))
	for i := range seq {
		seq[i] = names[draw()]
	}
	return seq
}

// limitFor returns the limit under which the fraction 1/Over of perSecond decisions is admitted.
func (w workload) limitFor(perSecond float64) hybridlimit.Limit {
	if w.Over == 0 {
		return w.Limit
	}
	const period = 100 * time.Millisecond
	units := max(1, int64(perSecond*period.Seconds()/float64(w.Over)/float64(w.Keys)+0.5))
	return hybridlimit.TokenBucket(units, period, units)
}
