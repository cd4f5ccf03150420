// Package news finds out who takes news about a key of a limiter: that it is paused. Package spend tells them. The
// packages of limiters register their types, so that limiters have no method for it, and spend does not import them.
package news

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Teller takes news about keys of a limiter.
type Teller interface {
	// Pause denies each call for a key until a time from now: above 0, and at most LongestPause.
	Pause(ctx context.Context, key string, left time.Duration) error
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

// Of returns the Teller of a limiter, or nil.
func Of(l hybridlimit.Limiter) Teller {
	for _, find := range finders {
		if t := find(l); t != nil {
			return t
		}
	}
	return nil
}
