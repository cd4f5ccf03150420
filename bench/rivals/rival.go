package rivals

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
)

// Where is where a rival decides.
type Where uint8

const (
	// InMemory rivals know only their own process.
	InMemory Where = iota
	// InRedis rivals ask Redis for each decision.
	InRedis
	// InBoth rivals decide in memory and share a limit through Redis.
	InBoth
)

// Rival is a limiter that can be measured.
type Rival struct {
	Name   string // for tables and benchmark names: without spaces and slashes
	Module string // the module whose version is reported; empty: this module
	What   string // the measured call
	Where  Where
	Single bool // the rival has no keys, or uses a handle of one key
	// Bounded reports whether the rival holds about Env.Keys keys at most, in
	// memory alone, and replaces one when a new key comes in.
	Bounded bool
	// GivesUp reports whether some calls end in an error when many callers ask
	// for one key. Such a call counts as a denial.
	GivesUp bool
	Open    func(Env) (Limiter, error)
}

// Env has the settings for Open.
type Env struct {
	// Limit is a token bucket. Rivals that count windows take its rate and
	// period. For an InFlightRival it is a limit of calls in flight.
	Limit hybridlimit.Limit
	Keys  int  // number of keys; a bound on memory must not be lower
	Full  bool // the bound on memory is Keys, and more keys come
	// Redis is a client and Addr its address, for rivals that need one. They do not close it.
	Redis redis.UniversalClient
	Addr  string
	// Name distinguishes the limiters in one Redis. It may be empty.
	Name string
	// Patience is the longest wait for Redis, for a rival that otherwise
	// decides without it. Zero means the rival's own default.
	Patience time.Duration
}

// Limiter is an open rival.
type Limiter interface {
	// Decide asks for one unit of each key in turn, and returns the number of calls that may proceed. It ends at the
	// first error. It is safe for concurrent use.
	Decide(ctx context.Context, keys []string) (allowed int, err error)
	Close() error
}

// Warmer is a limiter that needs a warm-up.
type Warmer interface {
	// Warm waits until the limiter is warm.
	Warm(ctx context.Context) error
}

// Settler is a limiter that has work left after a decision.
type Settler interface {
	// Settle waits until no message is in flight and no lease is held.
	Settle(ctx context.Context) error
}

// Sourced is a limiter that reports the sources of its decisions, so that a
// measurement can check that it measured the intended path.
type Sourced interface {
	Sources() map[hybridlimit.Source]int64
}

// All has every rival, in the order of the tables. The limiters of this library are last.
var All = []Rival{
	xtimeRate, xtimeSyncMap, xtimeLRU, sethvargo, ululeMemory, throttledMemory, failsafe,
	ululeRedis, throttledRedis, goZero, redisRate,
	ourLocal, ourGlobal, ourHybrid, ourBucket, ourJoint,
}

// Find returns the rival with the given name.
func Find(name string) (Rival, error) {
	for _, r := range All {
		if r.Name == name {
			return r, nil
		}
	}
	return Rival{}, fmt.Errorf("rivals: there is no %q", name)
}

// perSecond returns the rate in units a second.
func perSecond(l hybridlimit.Limit) float64 { return float64(l.Rate) / l.Period.Seconds() }
