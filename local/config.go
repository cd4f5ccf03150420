package local

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// defaultMaxKeys costs 28 MB when full (token buckets, 32-byte keys, measured).
const defaultMaxKeys = 100_000

// Config sets how a Limiter keeps its keys. The zero Config is ready to use.
type Config struct {
	// Name is reported as Result.Policy. Empty: none. If set it must satisfy
	// hybridlimit.CheckName.
	Name string
	// MaxKeys is the most keys that are held; the least recently used one makes
	// room for a new one. Zero: 100 000. A key costs 180 to 250 bytes and its
	// name, and a key of a log 24 bytes more for each call in it. A limiter that
	// is too small for its keys loses their history.
	MaxKeys int
	// MaxKeyBytes is the length of the longest key, in bytes; a longer one is an
	// error. Zero: hybridlimit.DefaultMaxKeyBytes. Keys are copied, so MaxKeys
	// times MaxKeyBytes bounds the memory of their names.
	MaxKeyBytes int
	// IdleAfter is the time without a call after which a key can be dropped.
	// Zero: the limit's TimeToFull. A key that is not full by then (in debt, or
	// with a limit of its own) stays, so nothing is lost. A longer time costs
	// memory and saves allocations for returning keys. A shorter one than
	// TimeToFull would forgive used units and is refused.
	IdleAfter time.Duration
	// LimitFor returns the limit of a key, of the limiter's algorithm. If it
	// returns the limit given to New, or the present one, the key has no limit
	// of its own and follows SetLimit. Nil: all keys have one limit.
	//
	// It is called when a key comes into memory: at its first call, and again
	// after it was dropped, evicted or reset. It is also called by a Peek at a
	// key that is not held. For a key that it makes Unlimited or Blocked,
	// nothing is held, so it is called each time. It is called under no lock
	// and must be safe for concurrent use. It costs one more lookup per call.
	//
	// A limit that New would refuse is an error of the call (ErrInvalid).
	// Return Blocked() for a key without a limit.
	LimitFor func(key string) hybridlimit.Limit
}

// withDefaults sets the zero fields to their defaults. The limit must be valid.
func (c Config) withDefaults(limit hybridlimit.Limit) Config {
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.MaxKeyBytes == 0 {
		c.MaxKeyBytes = hybridlimit.DefaultMaxKeyBytes
	}
	if c.IdleAfter == 0 {
		c.IdleAfter = limit.TimeToFull()
	}
	return c
}

// check returns all violations of a limit and its Config in one
// *hybridlimit.InvalidError, or ErrUnsupported for an unknown algorithm.
// maxBurst is the largest burst of a rate.Limiter: math.MaxInt.
func check(limit hybridlimit.Limit, c Config, maxBurst int64) error {
	var bad hybridlimit.Violations
	checkLimit(&bad, limit, maxBurst)
	validLimit := len(bad) == 0
	if c.Name != "" && !hybridlimit.CheckName(c.Name) {
		bad.Add("Config.Name", c.Name, "must be 1 to 128 of [A-Za-z0-9_.-]")
	}
	if c.MaxKeys < 0 {
		bad.Add("Config.MaxKeys", c.MaxKeys, "must not be negative")
	}
	if c.MaxKeyBytes < 0 {
		bad.Add("Config.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	}
	switch full := limit.TimeToFull(); {
	case c.IdleAfter < 0:
		bad.Add("Config.IdleAfter", c.IdleAfter, "must not be negative")
	case validLimit && c.IdleAfter != 0 && c.IdleAfter < full:
		bad.Add("Config.IdleAfter", c.IdleAfter, fmt.Sprintf("must be at least the limit's time to full (%v)", full))
	}
	if err := bad.Err("local"); err != nil {
		return err
	}
	if !offered(limit.Algorithm) {
		return fmt.Errorf("local: %w: %v", hybridlimit.ErrUnsupported, limit.Algorithm)
	}
	return nil
}

// checkLimit adds the violations of a limit alone.
func checkLimit(bad *hybridlimit.Violations, limit hybridlimit.Limit, maxBurst int64) {
	before := len(*bad)
	bad.AddLimit(limit)
	if burst := limit.BurstSize(); len(*bad) == before && onRateLimiter(limit.Algorithm) && burst > maxBurst {
		bad.Add("Limit.Burst", burst, fmt.Sprintf("must be at most %d on this platform", maxBurst))
	}
}
