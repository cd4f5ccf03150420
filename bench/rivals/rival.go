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
	// InMemory rivals know their process only.
	InMemory Where = iota
	// InRedis rivals ask Redis each time.
	InRedis
	// InBoth rivals decide in memory and share a limit through Redis.
	InBoth
)

// Rival is a limiter that can be measured.
type Rival struct {
	Name   string // in tables and benchmark names: neither spaces nor slashes
	Module string // whose version says what was measured; empty: this one's
	What   string // the call that is made
	Where  Where
	Single bool // there is no key: it is one limiter, or a handle of one key
	// GivesUp says that where many ask about one key some calls end in an
	// error, which counts as a denial.
	GivesUp bool
	Open    func(Env) (Limiter, error)
}

// Env is what a rival is opened with.
type Env struct {
	// Limit is a token bucket. Rivals that count windows take its rate and
	// period.
	Limit hybridlimit.Limit
	Keys  int // how many there will be; no bound of memory may lie below it
	// Redis and its address, for those that need one; they do not close it.
	Redis redis.UniversalClient
	Addr  string
	// Name sets limiters in one Redis apart. The empty one will do.
	Name string
	// Patience is how long a rival that decides without Redis, when that takes
	// too long, shall wait for it. Zero: as long as it does by itself.
	Patience time.Duration
}

// Limiter is a rival that is open.
type Limiter interface {
	// Decide asks about one key after the other, a unit each, and says how
	// many may proceed. It ends at the first error. It is safe for concurrent
	// use.
	Decide(ctx context.Context, keys []string) (allowed int, err error)
	Close() error
}

// Warmer is a limiter that is not at once what it is later.
type Warmer interface {
	// Warm waits until it is.
	Warm(ctx context.Context) error
}

// Settler is a limiter that works on after a decision.
type Settler interface {
	// Settle waits until nothing is on its way, and nothing that was lent is
	// still out.
	Settle(ctx context.Context) error
}

// Sourced is a limiter that knows who has decided, so that a measurement can
// tell whether it went the way that was meant.
type Sourced interface {
	Sources() map[hybridlimit.Source]int64
}

// All is every rival, in the order of tables. Ours are last.
var All = []Rival{
	xtimeRate, xtimeSyncMap, xtimeLRU, sethvargo, ululeMemory, throttledMemory, failsafe,
	ululeRedis, throttledRedis, goZero, redisRate,
	ourLocal, ourGlobal, ourHybrid, ourBucket,
}

// Find is the rival of that name.
func Find(name string) (Rival, error) {
	for _, r := range All {
		if r.Name == name {
			return r, nil
		}
	}
	return Rival{}, fmt.Errorf("rivals: there is no %q", name)
}

// perSecond is the rate in units a second.
func perSecond(l hybridlimit.Limit) float64 { return float64(l.Rate) / l.Period.Seconds() }
