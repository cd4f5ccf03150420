// Package news finds out who takes news about a key of a limiter: that it is paused, or that another party has counted
// use of it. Package spend tells them. The packages of limiters register their types, so that limiters have no method for
// it, and spend does not import them.
package news

import (
	"context"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Teller takes news about keys of a limiter.
type Teller interface {
	// Pause denies each call for a key until a time from now: above 0, and at most LongestPause.
	Pause(ctx context.Context, key string, left time.Duration) error
	// Observe lowers the units left of a key to what another party has counted. It never raises them.
	Observe(ctx context.Context, key string, o Observation) error
}

// Observation is what another party says of a key, such as the provider whom the fleet calls.
type Observation struct {
	Remaining int64         // units that are left, not negative
	Valid     time.Duration // above 0; later it is too old
	// Pace is the time until the other party has new units. A bucket refills in this time, and the other party does not:
	// the units of the refill come off Remaining. 0: the other party's units come back as those of the limit.
	Pace time.Duration
}

// Used returns the units of a limit that are used at least: of a bucket up to twice the burst, which is debt.
func (o Observation) Used(l hybridlimit.Limit) int64 {
	burst := l.BurstSize()
	left := float64(o.Remaining)
	switch l.Algorithm {
	case hybridlimit.AlgTokenBucket, hybridlimit.AlgLeakyBucket:
		left -= float64(l.Rate) * o.Pace.Seconds() / l.Period.Seconds()
	}
	if left >= float64(burst) {
		return 0
	}
	return min(burst-int64(math.Floor(left)), 2*burst)
}

// LongestPause is the longest pause.
const LongestPause = 10 * time.Minute

// finders are those of Register. They are written only while packages are initialised.
var finders []func(hybridlimit.Limiter) Teller

// Register adds the Tellers of limiters of type L. Call it from init.
func Register[L interface {
	comparable
	hybridlimit.Limiter
}](teller func(L) Teller) {
	finders = append(finders, func(l hybridlimit.Limiter) Teller {
		own, ok := l.(L)
		if none := *new(L); !ok || own == none {
			return nil
		}
		return teller(own)
	})
}

// Inner returns the limiter inside wrappers, such as those of package otellimit.
func Inner(l hybridlimit.Limiter) hybridlimit.Limiter {
	for {
		w, ok := l.(interface{ Unwrap() hybridlimit.Limiter })
		if !ok {
			return l
		}
		l = w.Unwrap()
	}
}

// Of returns the Teller of the limiter inside wrappers, or nil.
func Of(l hybridlimit.Limiter) Teller {
	l = Inner(l)
	for _, find := range finders {
		if t := find(l); t != nil {
			return t
		}
	}
	return nil
}
