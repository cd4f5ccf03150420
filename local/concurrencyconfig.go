package local

import (
	"fmt"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// ConcurrencyConfig sets how a ConcurrencyLimiter waits and keeps its keys. The zero ConcurrencyConfig is ready to use.
type ConcurrencyConfig struct {
	// Name is reported as Result.Policy. Empty: none. If set it must satisfy hybridlimit.CheckName.
	// hybridlimit.AllowAll acquires the permits of several limiters in the order of their names.
	Name string
	// MaxWait is the longest time for which a call waits for a permit. Calls of one key are served in the order in
	// which they came, so a call of many permits is not overtaken by smaller ones. hybridlimit.Never: as long as ctx.
	// Zero: a call without a free permit is denied at once.
	MaxWait time.Duration
	// MaxKeys is the largest number of keys with running calls. The first call of one key more fails with
	// hybridlimit.ErrTooManyKeys. Zero: 100 000. A key without running calls does not count.
	MaxKeys int
	// MaxKeyBytes is the length of the longest valid key, in bytes. Zero: hybridlimit.DefaultMaxKeyBytes.
	MaxKeyBytes int
	// LimitFor returns the limit of a key: of calls in flight, Unlimited or Blocked. If it returns the limit given to
	// NewConcurrency, or the present one, the key follows SetLimit. Nil: all keys have one limit.
	//
	// It is called for each call, under no lock, and must be safe for concurrent use. A new answer changes the key as
	// SetLimit does. A limit that NewConcurrency would refuse is an error of the call (ErrInvalid). A panic of LimitFor
	// goes to the caller, and nothing is held.
	LimitFor func(key string) hybridlimit.Limit
}

// withDefaults sets the zero fields to their defaults.
func (c ConcurrencyConfig) withDefaults() ConcurrencyConfig {
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.MaxKeyBytes == 0 {
		c.MaxKeyBytes = hybridlimit.DefaultMaxKeyBytes
	}
	return c
}

// check returns all violations of a limit and of the configuration, or ErrUnsupported for the limit of a rate.
func (c ConcurrencyConfig) check(limit hybridlimit.Limit) error {
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if c.Name != "" && !hybridlimit.CheckName(c.Name) {
		bad.Add("ConcurrencyConfig.Name", c.Name, "must be 1 to 128 of [A-Za-z0-9_.-]")
	}
	if c.MaxWait < 0 {
		bad.Add("ConcurrencyConfig.MaxWait", c.MaxWait, "must not be negative")
	}
	if c.MaxKeys < 0 {
		bad.Add("ConcurrencyConfig.MaxKeys", c.MaxKeys, "must not be negative")
	}
	if c.MaxKeyBytes < 0 {
		bad.Add("ConcurrencyConfig.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	}
	if err := bad.Err("local"); err != nil {
		return err
	}
	if limit.Algorithm != hybridlimit.AlgConcurrent && !static(limit.Algorithm) {
		return fmt.Errorf("local: %w: a limiter of calls in flight has no rate (%v): use New", hybridlimit.ErrUnsupported, limit)
	}
	return nil
}

// permitsOf returns the number of permits of a limit of calls in flight. It is unlimited for Unlimited, and 0 for
// Blocked.
func permitsOf(limit hybridlimit.Limit) (int64, error) {
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if len(bad) == 0 && limit.Algorithm != hybridlimit.AlgConcurrent && !static(limit.Algorithm) {
		bad.Add("Limit.Algorithm", limit.Algorithm, "must be concurrent, unlimited or blocked: this limiter counts calls in flight")
	}
	return limit.BurstSize(), bad.Err("local")
}

// unlimited is the number of permits of Unlimited. A valid limit of calls in flight has fewer.
const unlimited = math.MaxInt64
