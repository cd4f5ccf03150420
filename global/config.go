package global

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Config holds the settings of a Limiter. Processes share a limit if their Prefix, Tags, Name and HashKeys are the
// same.
type Config struct {
	// Prefix starts every Redis key, [A-Za-z0-9_.-]+. Empty: "hl".
	Prefix string
	// Tags is the number of tags, 1 to 16384. Each tag lies in one cluster slot, and keys are spread over the tags by
	// hash. Tags is part of the deployment's identity: with another number all keys start as unused keys. Zero: 16.
	Tags int
	// Name names the limiter, [A-Za-z0-9_.-]+. Required.
	Name string
	// Timeout bounds each decision, in addition to the caller's ctx. Zero: 250 ms.
	Timeout time.Duration
	// MaxKeyBytes is the length of the longest accepted key. Zero: 512.
	MaxKeyBytes int
	// FailOpen is the decision in the Result beside ErrUnavailable. True admits. False, the zero value, denies.
	FailOpen bool
	// Breaker configures the circuit breaker. While Redis does not answer, it is open: decisions fail at once with
	// ErrUnavailable, and no call waits for Timeout. One call after the other tries whether Redis is back. There is one
	// breaker, or on a Cluster or Ring one for each tag. Zero: the defaults of package breaker, but slow calls do not
	// count: Timeout bounds them. Breaker.OnChange hears of each change.
	Breaker breaker.Config
	// LimitFor returns the limit of a key. It is called for each decision and must be safe for concurrent use. So a new
	// answer applies at once, and there is no LimitRefresh and no Invalidate as in local and hybrid. If it returns a
	// limit other than the limiter's, the decision also costs a validation of that limit. A limit that New would
	// refuse, or of another algorithm, is an error of the call (ErrInvalid). Return Blocked() for a key without a
	// limit. Nil: one limit for all keys.
	LimitFor func(key string) hybridlimit.Limit
	// TagBy returns the text that decides the tag of a key. Keys with one text share a tag, and so a cluster slot.
	// Nil: the key itself.
	TagBy func(key string) string
	// HashKeys is a secret with which callers' keys are hashed before they are named in Redis. Set it if keys are
	// personal data (an address, an e-mail). Then the keys cannot be read in Redis or in its backups. In memory a key
	// is not hashed.
	//
	// The hash is HMAC-SHA-256, cut to 128 bits; lua.Names has the probability that two keys share a hash. It costs
	// about 1 µs for each decision.
	//
	// The secret has 32 to 1024 bytes, the same in all processes. It is part of the deployment's identity: with another
	// secret, or without one, all keys start as unused keys. Keep it out of Redis. The id of hybridlimit.WithRequestID
	// is stored as it is. Zero: keys are named as they are.
	HashKeys hybridlimit.Secret
	// Functions runs the library as Redis Functions (FCALL) instead of scripts (EVALSHA). It is the same Lua at the
	// same speed. Redis itself keeps the functions: they are replicated, survive a restart with persistence, and can be
	// listed.
	//
	// Functions need Redis 7 and the rights to FCALL and FUNCTION LOAD. The library is loaded wherever it is missing.
	// Without Redis 7 or the rights, every call fails as without Redis. There is no fallback to scripts, with one
	// exception: in a cluster, calls for a slot that is moving to a new node, or after repeated FUNCTION FLUSH, run as
	// scripts.
	//
	// Processes with and without Functions share one state. Zero: scripts.
	Functions bool
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "hl"
	}
	if c.Tags == 0 {
		c.Tags = lua.DefaultTags
	}
	if c.Timeout == 0 {
		c.Timeout = 250 * time.Millisecond
	}
	if c.Breaker.SlowCall == 0 {
		c.Breaker.SlowCall = -1
	}
	return c
}

func (c Config) violations(limit hybridlimit.Limit) error {
	var bad adapter.Violations
	bad.AddLimit(limit)
	bad.AddIf(!adapter.CheckName(c.Prefix), "Config.Prefix", c.Prefix, "must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(!adapter.CheckName(c.Name), "Config.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(c.Tags < 1 || c.Tags > lua.MaxTags, "Config.Tags", c.Tags, "must be 1 to 16384")
	bad.AddIf(c.Timeout < 0, "Config.Timeout", c.Timeout, "must not be negative")
	bad.AddSecret("Config.HashKeys", c.HashKeys)
	bad = append(bad, circuit.Violations(c.Breaker, "Config.Breaker.")...)
	bad.AddIf(c.MaxKeyBytes < 0, "Config.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	return bad.Err("global")
}
