package global

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Config is how a Limiter uses Redis. Prefix, Tags and Name are the identity
// under which processes share a limit.
type Config struct {
	// Prefix starts every Redis key, [A-Za-z0-9_.-]+. Empty: "hl".
	Prefix string
	// Tags is how many cluster slots keys are spread over, 1 to 16384. It is
	// part of the deployment's identity: another number is another keyspace.
	// Zero: 16.
	Tags int
	// Name names the limiter, [A-Za-z0-9_.-]+. Required.
	Name string
	// Timeout bounds each decision, besides the caller's ctx. Zero: 250 ms.
	Timeout time.Duration
	// MaxKeyBytes is the longest key taken. Zero: 512.
	MaxKeyBytes int
	// FailOpen says what the Result beside ErrUnavailable holds. False, the
	// zero value, denies.
	FailOpen bool
	// LimitFor gives a key its own limit. It is asked for each decision, must
	// be safe for concurrent use, and costs what validating a limit costs
	// where it gives another than the limiter's. A limit that New would refuse,
	// or of another algorithm, is an error of the call (ErrInvalid): return
	// Blocked() for a key that has none. Nil: one limit for all.
	LimitFor func(key string) hybridlimit.Limit
	// Subject maps a key to what decides its slot; keys with one subject
	// share a slot. Nil: the key itself.
	Subject func(key string) string
	// HashKeys is a secret with which callers' keys are hashed before they are
	// named in Redis: set it where a key is personal data (an address, an e-mail),
	// so that neither Redis nor who looks into it or its backups can read it.
	// In memory the key stays as it is. It is HMAC-SHA-256, cut to 128 bits
	// (lua.Names has the bound for two keys that share one), and costs about 1 µs
	// for each decision. 32 to 1024 bytes, the same in all processes: it is
	// part of the deployment's identity, and with another one, or without, all
	// keys begin anew. Keep it out of Redis. What hybridlimit.WithRequestID
	// names is stored as it is. Zero: keys are named as they are.
	HashKeys hybridlimit.Secret
	// Functions runs the library as Redis Functions (FCALL) instead of scripts
	// (EVALSHA): the same Lua at the same speed, kept by Redis itself, so that
	// it is replicated, survives a restart with persistence, and can be listed.
	// It needs Redis 7 and the rights to FCALL and FUNCTION LOAD: the library
	// is loaded wherever it is missing. Without either every call fails, as
	// without a Redis: there is no falling back to scripts (but for calls that
	// meet a slot on its way to a new node of a cluster, which go as EVAL).
	// Processes with and without it share one state. Zero: scripts.
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
	return c
}

func (c Config) violations(limit hybridlimit.Limit) error {
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if !hybridlimit.CheckName(c.Prefix) {
		bad.Add("Config.Prefix", c.Prefix, "must match [A-Za-z0-9_.-]{1,128}")
	}
	if !hybridlimit.CheckName(c.Name) {
		bad.Add("Config.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	}
	if c.Tags < 1 || c.Tags > lua.MaxTags {
		bad.Add("Config.Tags", c.Tags, "must be 1 to 16384")
	}
	if c.Timeout < 0 {
		bad.Add("Config.Timeout", c.Timeout, "must not be negative")
	}
	bad.AddSecret("Config.HashKeys", c.HashKeys)
	if c.MaxKeyBytes < 0 {
		bad.Add("Config.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	}
	return bad.Err("global")
}
