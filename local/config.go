package local

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// defaultMaxKeys costs 24 MB when all of it is in use (32-byte keys, measured).
const defaultMaxKeys = 100_000

// Config says how a Limiter keeps its keys. The zero Config is ready to use.
type Config struct {
	// Name is reported as Result.Policy. Empty: none. If set it must satisfy
	// hybridlimit.CheckName.
	Name string
	// MaxKeys is how many keys are held at most; the least recently used one
	// makes room. Zero: 100 000. A key costs about 210 bytes and its name. A
	// limiter that is too small for its keys forgets what they used.
	MaxKeys int
	// MaxKeyBytes is the longest key in bytes; a longer one is an error. Zero:
	// hybridlimit.DefaultMaxKeyBytes. Keys are copied, so this times MaxKeys
	// bounds what their names take.
	MaxKeyBytes int
	// IdleAfter is for how long nobody must have asked about a key before it
	// can be dropped. Zero: the limit's TimeToFull, which loses nothing: by
	// then the bucket is full and its state says nothing. Longer costs memory
	// and saves allocations for keys that come back; shorter would be an
	// amnesty and is refused.
	IdleAfter time.Duration
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
	bad.AddLimit(limit)
	validLimit := len(bad) == 0
	if burst := limit.BurstSize(); validLimit && burst > maxBurst {
		bad.Add("Limit.Burst", burst, fmt.Sprintf("must be at most %d on this platform", maxBurst))
	}
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
	if limit.Algorithm != hybridlimit.AlgTokenBucket {
		return fmt.Errorf("local: %w: %v", hybridlimit.ErrUnsupported, limit.Algorithm)
	}
	return nil
}
