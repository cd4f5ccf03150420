package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

const (
	sec = int64(time.Second)
	ms  = int64(time.Millisecond)
)

// stepTerms is a bucket of 10 that refills 10 a second, and a fleet of two with
// credit for 4.
func stepTerms() *terms {
	l := hybridlimit.TokenBucket(10, time.Second, 10)
	return &terms{
		bucket: algo.BucketOf(l), limit: l, mode: ModeAuto, n: 2, credit: 4, every: 1000,
		rtt: ms, tick: int64(tick), maxWait: 20 * ms, relookIn: maxLookAgain,
		share: shareTerms{cap: 5, perNs: 5e-9},
	}
}

// seen is a state that heard of so many units at 1 s, a round trip after it
// had asked.
func seen(t *terms, units float64) state {
	return state{view: view{
		level: int64(units * float64(t.bucket.Unit)), cap: t.bucket.Cap, sent: sec - ms, received: sec, relook: sec + maxLookAgain, known: true,
	}}
}
