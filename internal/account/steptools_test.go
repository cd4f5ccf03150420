package account

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
func stepTerms() *Conditions {
	l := hybridlimit.TokenBucket(10, time.Second, 10)
	return &Conditions{
		Bucket: algo.BucketOf(l), Limit: l, Mode: ModeAuto, N: 2, Credit: 4, Every: 1000,
		RTT: ms, Tick: int64(tick), MaxWait: 20 * ms, RelookIn: MaxView,
		Fallback: Fallback{Cap: 5, PerNs: 5e-9},
	}
}

// seen is a state that heard of so many units at 1 s, a round trip after it
// had asked.
func seen(t *Conditions, units float64) Account {
	return Account{view: view{
		level: int64(units * float64(t.Bucket.Unit)), cap: t.Bucket.Cap, sent: sec - ms, received: sec, relook: sec + MaxView, known: true,
	}}
}
