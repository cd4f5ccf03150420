package local

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// defaultMaxKeys costs 28 MB when all of it is in use (token buckets, 32-byte
// keys, measured).
const defaultMaxKeys = 100_000

// Config says how a Limiter keeps its keys. The zero Config is ready to use.
type Config struct {
	// Name is reported as Result.Policy. Empty: none. If set it must satisfy
	// hybridlimit.CheckName.
	Name string
	// MaxKeys is how many keys are held at most; the least recently used one
	// makes room. Zero: 100 000. A key costs 180 to 250 bytes and its name, one of
	// a log 24 more for each call in it. A limiter that is too small for its
	// keys forgets what they used.
	MaxKeys int
	// MaxKeyBytes is the longest key in bytes; a longer one is an error. Zero:
	// hybridlimit.DefaultMaxKeyBytes. Keys are copied, so this times MaxKeys
	// bounds what their names take.
	MaxKeyBytes int
	// IdleAfter is for how long nobody must have asked about a key before it
	// can be dropped. Zero: the limit's TimeToFull. A key that still says
	// something by then (one in debt, one with a limit of its own) stays, so
	// nothing is lost. Longer costs memory and saves allocations for keys that
	// come back; shorter would be an amnesty and is refused.
	IdleAfter time.Duration
	// LimitFor gives a key its own limit, of the limiter's algorithm; the
	// limit that New was given, or the present one, means that it has none of
	// its own, and goes along with SetLimit. It is asked when a key comes into memory, and again when it
	// comes back after it was dropped, evicted or reset; also by calls that
	// look at a key that is not there. It is called under no lock and must be
	// safe for concurrent use; with it, each call costs one lookup more. A
	// limit that New would refuse is an error of the call (ErrInvalid): return
	// Blocked() for a key that has none. A key that it calls
	// Unlimited or Blocked is not held, so it is asked at each call. Nil: one limit for
	// all.
	LimitFor func(key string) hybridlimit.Limit
}

// withDefaults fills in the zero fields. It wants a valid limit.
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

// check reports all that is wrong with a limit and its Config in one
// *hybridlimit.InvalidError; if nothing is, whether the algorithm is offered.
// maxBurst is what rate.Limiter can hold: math.MaxInt.
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

// checkLimit notes what is wrong with a limit, whatever the Config.
func checkLimit(bad *hybridlimit.Violations, limit hybridlimit.Limit, maxBurst int64) {
	before := len(*bad)
	bad.AddLimit(limit)
	if burst := limit.BurstSize(); len(*bad) == before && onRateLimiter(limit.Algorithm) && burst > maxBurst {
		bad.Add("Limit.Burst", burst, fmt.Sprintf("must be at most %d on this platform", maxBurst))
	}
}
