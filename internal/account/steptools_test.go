package account

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

const (
	sec = int64(time.Second)
	ms  = int64(time.Millisecond)
)

// stepTerms returns the conditions of a bucket of 10 units that refills 10 per second, in a fleet of two with a credit of 4.
func stepTerms() *Conditions {
	l := hybridlimit.TokenBucket(10, time.Second, 10)
	return &Conditions{
		Bucket: algo.BucketOf(l), Limit: l, Mode: ModeAuto, N: 2, Credit: 4, Every: 1000,
		RTT: ms, Tick: int64(tick), MaxWait: 20 * ms, RelookIn: MaxView,
		Fallback: Fallback{Size: fallback.Size{Burst: 5, PerNs: 5e-9}, Share: newShare()},
	}
}

// seen returns an account that heard of the given units at 1 s, one round trip after it had asked.
func seen(t *Conditions, units float64) Account {
	return Account{view: view{
		level: int64(units * float64(t.Bucket.Unit)), cap: t.Bucket.Cap, sent: sec - ms, received: sec, relook: sec + MaxView, redisAt: 1,
	}}
}
