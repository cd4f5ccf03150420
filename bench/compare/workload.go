package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// workload is which keys are asked about, under which limit.
type workload struct {
	Name  string
	Title string
	About string
	Keys  int
	Limit hybridlimit.Limit
	Over  int64 // the limit is this part of what the rival itself can decide; 0: it is Limit
	Zipf  bool
}

// far is a limit that nobody reaches.
var far = hybridlimit.PerSecond(1_000_000_000)

const (
	hot     = "hot"
	denied  = "denied"
	zipf    = "zipf"
	uniform = "uniform"
	over    = "over"
)

var workloads = []workload{
	{
		Name: hot, Title: "One hot key, far below its limit", Keys: 1, Limit: far,
		About: "One key, 10⁹ a second: every call is admitted.",
	},
	{
		Name: denied, Title: "One hot key, over its limit", Keys: 1, Limit: hybridlimit.PerHour(1),
		About: "One key, one unit an hour (go-zero: a second, the least that it can): all calls but the first are denied.",
	},
	{
		Name: zipf, Title: "Zipf over 100 000 keys", Keys: 100_000, Limit: far, Zipf: true,
		About: "100 000 keys that are all in memory, drawn by Zipf's law (s = 1.1), 10⁹ a second each.",
	},
	{
		Name: uniform, Title: "Uniform over 1 000 000 keys", Keys: 1_000_000, Limit: far,
		About: "1 000 000 keys that are all in memory, drawn alike, 10⁹ a second each. " +
			"Every call meets a key that nobody has used for a while: the worst case for caches, and for a limiter that tells others of each key.",
	},
	{
		Name: over, Title: "Twenty times the limit: 95 % denied", Keys: 20, Limit: far, Over: 20,
		About: "20 keys, drawn alike. A twentieth of what the rival decides in a second is the limit of all keys together, " +
			"counted in periods of 100 ms; so each rival has a limit of its own. Callers ask as fast as they are answered: " +
			"a limiter that waits for Redis, rather than deny what Redis may have, is asked less, and denies less.",
	},
}

// single says whether limiters without keys can take part.
func (w workload) single() bool { return w.Keys == 1 }

// scaled is the workload with fewer keys, for tests of this program.
func (w workload) scaled(by int) workload {
	w.Keys = max(w.Keys/by, min(w.Keys, 20))
	return w
}

// levels are the numbers of goroutines.
func levels() []int { return slices.Compact([]int{1, runtime.GOMAXPROCS(0), 64}) }

// keyName is a key of 20 bytes, in new memory each time.
func keyName(i int) string { return fmt.Sprintf("%020d", i) }

// drawn is how many draws there are before they come again: more than keys, so
// that most keys come, and too many for a cache.
const drawn = 1 << 20

// sequence is the keys of calls, in order. The strings are not those that a
// limiter has stored: comparing has to look at the bytes, as with keys that
// come from requests.
func (w workload) sequence() []string {
	if w.Keys == 1 {
		return slices.Repeat([]string{keyName(0)}, maxChunk)
	}
	names := make([]string, w.Keys)
	for i := range names {
		names[i] = keyName(i)
	}
	rng := rand.New(rand.NewPCG(1, uint64(w.Keys)))
	draw := func() int { return rng.IntN(w.Keys) }
	if w.Zipf {
		z := rand.NewZipf(rng, 1.1, 1, uint64(w.Keys-1))
		where := rng.Perm(w.Keys) // the first to come are not the most used
		draw = func() int { return where[z.Uint64()] }
	}
	seq := make([]string, min(drawn, max(maxChunk, w.Keys*64)))
	for i := range seq {
		seq[i] = names[draw()]
	}
	return seq
}

// limitFor is the limit under which a part of so many decisions a second is
// admitted.
func (w workload) limitFor(perSecond float64) hybridlimit.Limit {
	if w.Over == 0 {
		return w.Limit
	}
	const period = 100 * time.Millisecond
	units := max(1, int64(perSecond*period.Seconds()/float64(w.Over)/float64(w.Keys)+0.5))
	return hybridlimit.TokenBucket(units, period, units)
}
