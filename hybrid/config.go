package hybrid

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Config is one limit's. The zero value of every field but Name is usable.
type Config struct {
	// Name names the limiter, [A-Za-z0-9_.-]+. Required: the hub's Prefix and
	// Name are the identity that processes share.
	Name string
	// Mode says where units come from. Zero: ModeAuto.
	Mode Mode
	// Overshoot is the fraction of the burst that the whole fleet may admit
	// before Redis knows, 0 to 1. More lets more keys decide without waiting.
	// Zero: 0.05; negative: none. ModeAuto only.
	Overshoot float64
	// SyncEvery is K: a key syncs at the latest after so many units owed.
	// Smaller costs more messages. Zero: adaptive, what the key uses in
	// SyncInterval and at least 1000; the bound of ModeDeferred counts with
	// 1000 then.
	SyncEvery int64
	// SyncInterval is T: a key syncs at the latest so long after the first
	// unit owed. Zero: 50 ms. Smaller costs more messages. With more keys in
	// use than a connection can tell of in half of its time, all of what can
	// wait takes longer: seconds, with 100 000 keys a second. What a key may
	// owe is bounded all the same.
	SyncInterval time.Duration
	// MaxWait bounds the time that a decision waits for Redis. Zero: 20 ms;
	// negative: never wait (not with ModeExact).
	MaxWait time.Duration
	// MaxKeys bounds the keys held in memory; the least recently used goes
	// first, after paying what it owes. While Redis is away, keys that find it
	// full of keys that owe share as much as MaxKeys of them have, each its own
	// share at most: see docs/operations.md. Zero: 100 000.
	MaxKeys int
	// MaxKeyBytes is the longest key taken. Zero: 512.
	MaxKeyBytes int
	// Fallback decides while Redis does not answer. Zero: FallbackShare.
	Fallback Fallback
	// FallbackFloor is the units that a process always has in FallbackShare,
	// per key and time-to-full, however small its share. Zero: 1; negative:
	// none.
	FallbackFloor int64
	// Shadow decides and counts, but denies nobody.
	Shadow bool
	// LogDenials logs a denial to HubConfig.Logger, at level Info, at most once
	// in so long, whichever verb it was of: Allow and AllowN, AllowLimit,
	// AllowAtMost, Reserve, Wait (each time that it is refused), and AllowAll (by
	// the limit that denied). Not Peek, which decides nothing, and no cost above
	// the burst of Reserve and Wait, which is an error. Each denial counts once:
	// it has a line, or is in the "more" of a later line, whichever key that is of.
	// Where no later denial brings that line, one without a key comes two seconds
	// after it is due, or with Close. So the lines and their "more" add up to
	// Stats.Denied. The key is named by a digest (lua.Names.Digest), never as it
	// is: with HashKeys by the text that stands for it in Redis, else by a hash,
	// which a guess of the key can be checked against; hybridlimit inspect -digest
	// finds the key. What a shadow limit would have denied is logged too. At least
	// 1 ms. Zero: none.
	LogDenials time.Duration
	// LimitFor gives a key its own limit. It is asked when a key comes into
	// memory, off the common path, and must be safe for concurrent use. A limit
	// that New would refuse, or of another algorithm, is an error of the call
	// (ErrInvalid): return Blocked() for a key that has none. Nil: one limit for
	// all.
	LimitFor func(key string) hybridlimit.Limit
	// Subject maps a key to what decides its Redis slot; keys with one
	// subject share a slot. Nil: the key itself.
	Subject func(key string) string
	// Hub is for New only: the hub of this one limiter.
	Hub HubConfig
}

// HubConfig is one process's connection to one fleet.
type HubConfig struct {
	// Prefix starts every Redis key, [A-Za-z0-9_.-]+. Empty: "hl".
	Prefix string
	// Name tells the hub apart from others of its MeterProvider,
	// [A-Za-z0-9_.-]+: it is the attribute rate_limiting.hub of the metrics that
	// are the hub's and not a limiter's. It says nothing to Redis. While a hub of
	// one name is open, others get a number ("api-2"). Empty: Prefix, and for the
	// hub of a limiter made by New, Prefix/Config.Name.
	Name string
	// Tags is how many cluster slots keys are spread over, 1 to 16384. It is
	// part of the deployment's identity: another number is another keyspace.
	// Zero: 16.
	Tags int
	// FleetSize is N, the number of processes, until two heartbeats have
	// measured it. With Redis down at start it sizes the fallback's share, so
	// set it near the number of replicas. Zero: 1, with a warning when it
	// matters.
	FleetSize int
	// SyncTimeout bounds one attempt to reach Redis in the background. Zero:
	// 250 ms.
	SyncTimeout time.Duration
	// HashKeys is a secret with which callers' keys are hashed before they are
	// named in Redis: set it where a key is personal data (an address, an e-mail),
	// so that neither Redis nor who looks into it or its backups can read it.
	// In memory the key stays as it is. It is HMAC-SHA-256, cut to 128 bits
	// (lua.Names has the bound for two keys that share one), and costs about 1 µs
	// when a key comes into memory and with each
	// of its syncs. 32 to 1024 bytes, the same in all processes: it is
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
	// Breaker says when Redis counts as gone. Its OnChange is called besides
	// the hub's own.
	Breaker breaker.Config
	// MeterProvider takes the metrics, listed in docs/metrics.md. Nil: none, at
	// no cost.
	MeterProvider metric.MeterProvider
	// TracerProvider takes a span per sync. Nil: none.
	TracerProvider trace.TracerProvider
	// Logger takes one line per change of state. Nil: slog.Default().
	Logger *slog.Logger
}

const (
	defaultOvershoot = 0.05
	defaultSyncEvery = 1000
	defaultInterval  = 50 * time.Millisecond
	defaultMaxWait   = 20 * time.Millisecond
	defaultMaxKeys   = 100_000
	defaultTimeout   = 250 * time.Millisecond
)

func (c Config) withDefaults() Config {
	switch {
	case c.Overshoot == 0:
		c.Overshoot = defaultOvershoot
	case c.Overshoot < 0:
		c.Overshoot = 0
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = defaultInterval
	}
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	switch {
	case c.FallbackFloor == 0:
		c.FallbackFloor = 1
	case c.FallbackFloor < 0:
		c.FallbackFloor = 0
	}
	return c
}

func (c Config) violations(limit hybridlimit.Limit) hybridlimit.Violations {
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if !hybridlimit.CheckName(c.Name) {
		bad.Add("Config.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	}
	if c.Mode >= modes {
		bad.Add("Config.Mode", c.Mode, "is not a mode")
	}
	if !(c.Overshoot <= 1) { // also NaN
		bad.Add("Config.Overshoot", c.Overshoot, "must be at most 1")
	}
	if c.Overshoot > 0 && c.Mode != ModeAuto {
		bad.Add("Config.Overshoot", c.Overshoot, "is for ModeAuto, not "+c.Mode.String())
	}
	if c.SyncEvery < 0 {
		bad.Add("Config.SyncEvery", c.SyncEvery, "must not be negative")
	}
	if c.SyncInterval < 0 {
		bad.Add("Config.SyncInterval", c.SyncInterval, "must not be negative")
	}
	if c.MaxWait < 0 && c.Mode == ModeExact {
		bad.Add("Config.MaxWait", c.MaxWait, "must not be negative with ModeExact, which waits for every decision")
	}
	if c.LogDenials != 0 && c.LogDenials < time.Millisecond {
		bad.Add("Config.LogDenials", c.LogDenials, "must be at least 1ms, or 0 for none")
	}
	if c.MaxKeys < 0 {
		bad.Add("Config.MaxKeys", c.MaxKeys, "must not be negative")
	}
	if c.MaxKeyBytes < 0 {
		bad.Add("Config.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	}
	if c.Fallback >= fallbacks {
		bad.Add("Config.Fallback", c.Fallback, "is not a fallback")
	}
	if c.FallbackFloor > 0 && c.FallbackFloor > limit.BurstSize() {
		bad.Add("Config.FallbackFloor", c.FallbackFloor, "must not exceed the burst")
	}
	return bad
}

func (c HubConfig) withDefaults() HubConfig {
	if c.Prefix == "" {
		c.Prefix = "hl"
	}
	if c.Tags == 0 {
		c.Tags = lua.DefaultTags
	}
	if c.SyncTimeout == 0 {
		c.SyncTimeout = defaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c HubConfig) violations() hybridlimit.Violations {
	bad := circuit.Violations(c.Breaker, "HubConfig.Breaker.")
	if c.Prefix != "" && !hybridlimit.CheckName(c.Prefix) {
		bad.Add("HubConfig.Prefix", c.Prefix, "must match [A-Za-z0-9_.-]{1,128}")
	}
	if c.Name != "" && !hybridlimit.CheckName(c.Name) {
		bad.Add("HubConfig.Name", c.Name, "must match [A-Za-z0-9_.-]{1,128}")
	}
	if c.Tags < 0 || c.Tags > lua.MaxTags {
		bad.Add("HubConfig.Tags", c.Tags, "must be 1 to 16384, or 0 for 16")
	}
	if c.FleetSize < 0 {
		bad.Add("HubConfig.FleetSize", c.FleetSize, "must not be negative")
	}
	bad.AddSecret("HubConfig.HashKeys", c.HashKeys)
	if c.SyncTimeout < 0 {
		bad.Add("HubConfig.SyncTimeout", c.SyncTimeout, "must not be negative")
	}
	return bad
}
