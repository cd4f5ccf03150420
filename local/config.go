package local

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// defaultMaxKeys costs 22 MB when full (token buckets, 32-byte keys, measured).
const defaultMaxKeys = 100_000

var errClosed = fmt.Errorf("local: %w", hybridlimit.ErrClosed)

// Class is a class of calls of a limiter: see Config.Classes.
type Class = hybridlimit.Class

// Config sets how a Limiter keeps its keys. The zero Config is ready to use.
type Config struct {
	// Name is reported as Result.Policy. Empty: none. If set it must satisfy adapter.CheckName.
	Name string
	// MaxKeys is the largest number of keys that are held. A new key replaces the one that was used least recently, and
	// its history is lost: see Memory in the package documentation. Zero: 100 000.
	MaxKeys int
	// MaxKeyBytes is the length of the longest valid key, in bytes. Zero: adapter.DefaultMaxKeyBytes. Keys are
	// copied, so MaxKeys times MaxKeyBytes bounds the memory of their names.
	MaxKeyBytes int
	// IdleAfter is the time without a call after which a key is dropped if it is full. Zero: the limit's TimeToFull,
	// the shortest valid time. A longer time costs memory and saves allocations for returning keys.
	IdleAfter time.Duration
	// LimitFor returns the limit of a key, of the limiter's algorithm. If it returns the limit given to New, or the
	// present one, the key has no limit of its own and follows SetLimit. Nil: all keys have one limit.
	//
	// It is called for a key that is not held (also by Peek, and for a key that it makes Unlimited or Blocked each
	// time), and for a key that is held by the next call after LimitRefresh or Invalidate that brings no limit. First
	// calls for a key that come at once all call it. It is called under no lock and must be safe for concurrent use.
	//
	// A new limit changes a key that is held as SetLimit does: nothing refills. One call waits for the new answer.
	// Other calls for the key decide by the old limit meanwhile.
	//
	// A limit that New would refuse is an error of the call (ErrInvalid). A key that is held keeps its limit instead,
	// until the next question, and InvalidLimits counts that. A panic of LimitFor goes to the caller, and the key keeps
	// its limit too. Return Blocked() for a key without a limit.
	LimitFor func(key string) hybridlimit.Limit
	// LimitRefresh is the time after which LimitFor is called again for a key that is held. Each question comes after
	// half to the whole of it, at random, so that many keys do not ask in one moment. At least 10 ms.
	// hybridlimit.Never: only after Invalidate. Zero: 1 minute.
	LimitRefresh time.Duration
	// Classes are classes of calls that leave a part of the burst to others: a call through Limiter.Class is admitted
	// only if the floor of its class stays. At most 7, with different names and floors. Not for a sliding log. See
	// docs/limits.md. Nil: no classes.
	Classes []Class
}

// withDefaults sets the zero fields to their defaults. The limit must be valid.
func (c Config) withDefaults(limit hybridlimit.Limit) Config {
	c.MaxKeys = cmp.Or(c.MaxKeys, defaultMaxKeys)
	c.MaxKeyBytes = cmp.Or(c.MaxKeyBytes, adapter.DefaultMaxKeyBytes)
	c.LimitRefresh = cmp.Or(c.LimitRefresh, refresh.Default)
	c.IdleAfter = cmp.Or(c.IdleAfter, limit.TimeToFull())
	return c
}

// check returns all violations of a limit and its Config in one *hybridlimit.InvalidError, or ErrUnsupported for an
// algorithm that is unknown or not for a Limiter.
func check(limit hybridlimit.Limit, c Config) error {
	var bad adapter.Violations
	bad.AddLimit(limit)
	validLimit := len(bad) == 0
	checkKeys(&bad, "Config.", c.Name, c.MaxKeys, c.MaxKeyBytes)
	switch full := limit.TimeToFull(); {
	case c.IdleAfter < 0:
		bad.Add("Config.IdleAfter", c.IdleAfter, "must not be negative")
	case validLimit && c.IdleAfter != 0 && c.IdleAfter < full:
		bad.Add("Config.IdleAfter", c.IdleAfter, fmt.Sprintf("must be at least the limit's time to full (%v)", full))
	}
	refresh.Check(&bad, c.LimitRefresh)
	bad.AddClasses(c.Classes, limit)
	if err := bad.Err("local"); err != nil {
		return err
	}
	if limit.Algorithm == hybridlimit.AlgConcurrent {
		return fmt.Errorf("local: %w: a rate limiter does not count calls in flight (%v): use NewConcurrency", hybridlimit.ErrUnsupported, limit)
	}
	if !offered(limit.Algorithm) {
		return fmt.Errorf("local: %w: %v", hybridlimit.ErrUnsupported, limit.Algorithm)
	}
	return nil
}

// checkKeys adds the violations of the fields that Config and ConcurrencyConfig share.
func checkKeys(bad *adapter.Violations, config, name string, maxKeys, maxKeyBytes int) {
	bad.AddIf(name != "" && !adapter.CheckName(name), config+"Name", name, "must be 1 to 128 of [A-Za-z0-9_.-]")
	bad.AddIf(maxKeys < 0, config+"MaxKeys", maxKeys, "must not be negative")
	bad.AddIf(maxKeyBytes < 0, config+"MaxKeyBytes", maxKeyBytes, "must not be negative")
}
