package hybrid

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Config configures one limiter. The zero value of every field except Name is usable.
type Config struct {
	// Name names the limiter, [A-Za-z0-9_.-]+. Required. Processes that use the
	// same Redis, HubConfig.Prefix and Name share the limit.
	Name string
	// Mode chooses the source of units: leases, credit, or Redis for each call. Zero: ModeAuto.
	Mode Mode
	// Overshoot is the fraction of the burst, 0 to 1, that the whole fleet may admit before Redis is told. With a
	// larger value more keys decide without waiting. Zero: 0.05. Negative: none. ModeAuto only.
	Overshoot float64
	// SyncEvery is K: a key syncs at the latest when it owes this many units. Owed units are admitted, and Redis has
	// not acknowledged them. A smaller value costs more messages. Zero: adaptive, the units that the key uses in
	// SyncInterval, and at least 1000; the bound of ModeDeferred then uses 1000.
	SyncEvery int64
	// SyncInterval is T: a key syncs at the latest this long after the first unit owed. A smaller value costs more
	// messages. If more keys are in use than a connection can sync in half of its time, syncs that can wait take
	// longer: seconds at 100 000 keys a second. The units that a key may owe are still bounded. Zero: 50 ms.
	SyncInterval time.Duration
	// MaxWait bounds the time that a decision waits for Redis. Zero: 20 ms. Negative: never wait (not with ModeExact).
	MaxWait time.Duration
	// MaxLease bounds the life of a lease of a bucket: 1, 2 or 4 seconds. If a process crashes, other processes cannot use
	// its leased units for that time, or twice as long. A hot key costs Redis fewer ops with longer lives. A life is never
	// more than 0.4 of the time in which the bucket fills up, or 1 s. Zero: 4 s.
	MaxLease time.Duration
	// MaxKeys bounds the number of keys in memory. A new key replaces the one that was used least recently (an LRU of
	// golang-lru), after that has paid the units that it owes. If Redis is away, as many keys have a share of their
	// own: see Fallback. Zero: 100 000.
	MaxKeys int
	// MaxKeyBytes is the length of the longest valid key, in bytes. Zero: 512.
	MaxKeyBytes int
	// Fallback decides while Redis does not answer. Zero: FallbackShare.
	Fallback Fallback
	// FallbackFloor is the least burst of FallbackShare, in units: what a process may admit of a key at once, even if
	// its share of the burst is smaller. It raises no rate. Below 1: 1.
	FallbackFloor int64
	// Penalty denies a key in the whole fleet, for a time, after many denials. Zero: none.
	Penalty Penalty
	// Shadow makes the limiter decide and count, but deny no call.
	Shadow bool
	// LogDenials is the shortest time between two log lines about denials. They
	// go to HubConfig.Logger at level Info. At least 1 ms. Zero: no lines.
	//
	// Denials of these methods are logged: Allow, AllowN, AllowLimit, AllowAtMost, Reserve, Wait (each time that it is
	// refused), and AllowAll (by the limit that denied). Denials that a shadow limit would have made are logged too.
	// Peek decides nothing and is not logged. A cost above the burst is an error of Reserve and Wait, and is not
	// logged.
	//
	// Each denial counts once: it has its own line, or is in the "more" of a later line, which may be about another
	// key. Without a later denial, a line without a key is written two seconds after it is due, or with Close. So the
	// lines and their "more" add up to Stats.Denied.
	//
	// A line names the key by a digest (lua.Names.Digest), never by the key itself. With HashKeys the digest is the
	// text that stands for the key in Redis. Without HashKeys it is a hash without a secret: anyone who can guess the
	// key can check the guess. The command hybridlimit inspect -digest finds the key.
	LogDenials time.Duration
	// LimitFor returns the limit of a key. It is called when a key comes into memory, and again after LimitRefresh or
	// Invalidate, with the next call for the key. It is not called on the fast path, and under no lock. It must be safe
	// for concurrent use. For a key without a limit return Blocked(), which denies every call. Nil: one limit for all
	// keys.
	//
	// A new limit changes the key as SetLimit does. Used units stay used, the old rate counts up to the change, and the
	// new one from then on. One call waits for the new answer. Other calls for the key decide by the old limit
	// meanwhile.
	//
	// A limit that New would refuse, or of another algorithm, makes the call fail with ErrInvalid. If Allow, AllowN or
	// a method of Handle asks about a key in memory, the key keeps its limit instead, until the next question. That is
	// counted (Stats.InvalidLimits) and logged. A panic of LimitFor goes to the caller, and the key keeps its limit
	// too. ModeExact, logs, and all other methods that decide (AllowAll without units in hand, Reserve, Wait,
	// AllowAtMost, Charge, Refund) ask with each call.
	LimitFor func(key string) hybridlimit.Limit
	// LimitRefresh is the time after which LimitFor is asked again about a key in memory. Each question comes after
	// half to the whole of it, at random, so that many keys do not ask in one moment. A budget of the fast path can
	// delay it by up to 10 ms. A key without a call is not asked about. A shorter time costs more calls of LimitFor. At
	// least 10 ms. hybridlimit.Never: only after Invalidate. Zero: 1 minute.
	LimitRefresh time.Duration
	// Restore returns the units that a key has used since the begin of its period, and the time of that count, from the
	// caller's own records. It restores periods of calendar windows that Redis has lost and that no process remembers.
	//
	// It is asked once for each key, period and process, and once more after a later loss, in a goroutine of its own. It
	// is asked only if both the key's state in Redis and the data around it are younger than the period: after a loss,
	// and in the first period of a deployment. ModeExact knows only the age of the state. So Restore is asked about
	// unused keys too, and returns 0 for these.
	//
	// Calls go on meanwhile. Units used between the loss and the answer may count twice, and count at least once. 5 s
	// after the loss and later, only units used during the question may count twice. Units used between the returned
	// time and the loss are lost.
	//
	// It must be safe for concurrent use. It must return when ctx ends: with Close, or after 5 s. It must not close the
	// limiter. At most 16 questions run at a time. After an error or a panic, the key is asked about again with a sync 5 s
	// later. That is counted (Stats.RestoreFailures) and logged. Nil: no questions, at no cost.
	Restore func(ctx context.Context, key string, begin time.Time) (used int64, at time.Time, err error)
	// TagBy maps a key to the text that decides its tag. Keys with one text
	// share a tag, and so a cluster slot. Nil: the key itself.
	TagBy func(key string) string
	// Split returns the number of parts of a key: 2 to HubConfig.Tags, or 0 or 1 for a whole key. Each part has a part
	// of the limit and a state of its own, on another tag. Each process uses one part, and another one when that is
	// full. So the servers of a cluster share the load of a hot key. On a single Redis it gains nothing.
	//
	// A fleet should have many more processes than parts, since units of a part without processes are not used. A call
	// that costs more than the burst of a part, ⌊burst/k⌋, is never admitted. Result.Limit is the whole burst,
	// Result.Remaining is of the part.
	//
	// It is called when a key comes into memory, under no lock. It must be safe for concurrent use, and the same in all
	// processes: two numbers of parts of one key together admit up to twice its limit. Change it while the fleet is
	// stopped. A number below 0, above HubConfig.Tags, or above the rate or the burst makes the call fail with
	// ErrInvalid. A log and a queue cannot be split: ErrUnsupported. Not with Restore. Package global knows no parts.
	// Nil: all keys are whole, at no cost.
	Split func(key string) int
	// Classes are classes of calls that leave a part of the burst to others. A call through Limiter.Class is admitted
	// only if the floor of its class stays, so calls of the limiter itself, the critical ones, find these units. At
	// most 7, with different names and floors. All processes need not have the same classes. Not for a sliding log.
	// MaxKeys is for each class. Each class counts as a process for credit. Nil: no classes, at no cost.
	//
	// A floor costs a bucket or a queue a part of its burst: the others may still use the whole rate. It costs a window
	// that part of each window. See docs/limits.md.
	Classes []Class
	// Hub configures the limiter's own hub. It is for New only.
	Hub HubConfig
}

// HubConfig configures a hub: the connection of one process to one fleet.
type HubConfig struct {
	// Prefix starts every Redis key, [A-Za-z0-9_.-]+. Empty: "hl".
	Prefix string
	// Name distinguishes the hub from other hubs of its MeterProvider,
	// [A-Za-z0-9_.-]+. It is the attribute rate_limiting.hub of metrics that
	// belong to the hub, not to a limiter. Redis does not see it. While a hub of this name is open, further ones get a
	// number ("api-2"). Empty: Prefix; for the hub of a limiter made by New, Prefix/Config.Name.
	Name string
	// Tags is the number of tags, 1 to 16384. Each tag lies in one cluster slot, and keys are spread over them by hash.
	// Tags is part of the deployment's identity: with another number all keys start as unused keys. Zero: 16.
	Tags int
	// FleetSize is N, the number of processes, until two heartbeats have measured it. If Redis is down at the start, it
	// sets the size of the fallback share, so set it near the number of replicas. With it, Ready does not wait for the
	// measurement, and thousands of processes that start at once are patient (see SyncTimeout). Zero: 1, with a warning
	// when it matters.
	FleetSize int
	// SyncTimeout bounds one attempt to reach Redis in the background. Zero: 250 ms.
	//
	// A process of a large fleet waits longer, since Redis may be busy with a message of each process: N · 200 µs for
	// messages of one op, N · 2 ms for those of 64 ops, at most 4 s. Breaker.OpenFor is at least as long, and
	// Breaker.SlowCall ¾ of it. So a fleet of 10 000 notices after 6 s that Redis hangs, not after 1 s. Calls wait for
	// MaxWait, as always.
	SyncTimeout time.Duration
	// HashKeys is a secret. With it, Redis sees a hash of each caller's key instead of the key. Set it if keys are
	// personal data (an address, an e-mail): then the key cannot be read in Redis or in its backups. In memory the key
	// is not hashed. An ID from hybridlimit.WithRequestID is stored as it is.
	//
	// The hash is HMAC-SHA-256, cut to 128 bits (lua.Names has the probability that two keys share one). It costs about
	// 1 µs when a key comes into memory and with each of its syncs.
	//
	// The secret has 32 to 1024 bytes and is the same in all processes. It is part of the deployment's identity: with
	// another secret, or without one, all keys start as unused keys. Keep it out of Redis. Zero: keys are not hashed.
	HashKeys hybridlimit.Secret
	// Functions runs the library as Redis Functions (FCALL) instead of scripts (EVALSHA). It is the same Lua at the
	// same speed, but Redis keeps it: it is replicated, survives a restart with persistence, and can be listed. It
	// needs Redis 7 and the rights to FCALL and FUNCTION LOAD, because the library is loaded wherever it is missing.
	// Without either, every call fails as if Redis were away: there is no fallback to scripts. Only in a cluster, calls
	// for a slot that is moving to another node, or after repeated FUNCTION FLUSH, go as scripts. Processes with and
	// without Functions share one state. Zero: scripts.
	Functions bool
	// Breaker decides when Redis counts as away. Its OnChange is called in addition to the hub's own.
	Breaker breaker.Config
	// MeterProvider receives the metrics, listed in docs/metrics.md. Nil: no metrics, at no cost.
	MeterProvider metric.MeterProvider
	// TracerProvider receives one span per sync. Nil: none.
	TracerProvider trace.TracerProvider
	// Logger receives one line per change of state. Nil: slog.Default().
	Logger *slog.Logger
}

const (
	defaultOvershoot = 0.05
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
	c.FallbackFloor = max(c.FallbackFloor, 1)
	return c
}

func (c Config) violations(limit hybridlimit.Limit) adapter.Violations {
	var bad adapter.Violations
	bad.AddLimit(limit)
	bad.AddIf(!adapter.CheckName(c.Name), "Config.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(!account.Mode(c.Mode).Valid(), "Config.Mode", c.Mode, "is not a mode")
	if !(c.Overshoot <= 1) { // also NaN
		bad.Add("Config.Overshoot", c.Overshoot, "must be at most 1")
	}
	if c.Overshoot > 0 && c.Mode != ModeAuto {
		bad.Add("Config.Overshoot", c.Overshoot, "is only for ModeAuto, not for mode "+c.Mode.String())
	}
	bad.AddIf(c.SyncEvery < 0, "Config.SyncEvery", c.SyncEvery, "must not be negative")
	bad.AddIf(c.SyncInterval < 0, "Config.SyncInterval", c.SyncInterval, "must not be negative")
	if c.MaxWait < 0 && c.Mode == ModeExact {
		bad.Add("Config.MaxWait", c.MaxWait, "must not be negative with ModeExact, which waits for every decision")
	}
	switch c.MaxLease {
	case 0, time.Second, 2 * time.Second, 4 * time.Second:
	default:
		bad.Add("Config.MaxLease", c.MaxLease, "must be 1s, 2s or 4s, or 0 for 4s")
	}
	if c.LogDenials != 0 && c.LogDenials < time.Millisecond {
		bad.Add("Config.LogDenials", c.LogDenials, "must be at least 1ms, or 0 for none")
	}
	c.Penalty.check(&bad)
	refresh.Check(&bad, c.LimitRefresh)
	bad.AddIf(c.MaxKeys < 0, "Config.MaxKeys", c.MaxKeys, "must not be negative")
	bad.AddIf(c.MaxKeyBytes < 0, "Config.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	bad.AddIf(!fallback.Kind(c.Fallback).Valid(), "Config.Fallback", c.Fallback, "is not a fallback")
	if c.FallbackFloor > 0 && c.FallbackFloor > limit.BurstSize() {
		bad.Add("Config.FallbackFloor", c.FallbackFloor, "must not exceed the burst")
	}
	bad.AddClasses(c.Classes, limit)
	bad.AddIf(c.Split != nil && c.Restore != nil, "Config.Split", "a function", "must be nil with Config.Restore, which counts the whole key")
	calendar := limit.Algorithm == hybridlimit.AlgCalendarWindow && limit.Calendar.Unit != hybridlimit.FromUse
	if c.Restore != nil && !calendar {
		bad.Add("Config.Restore", "a function", fmt.Sprintf("is only for windows of a calendar, not for %v", limit))
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

func (c HubConfig) violations() adapter.Violations {
	bad := circuit.Violations(c.Breaker, "HubConfig.Breaker.")
	if c.Prefix != "" && !adapter.CheckName(c.Prefix) {
		bad.Add("HubConfig.Prefix", c.Prefix, "must match [A-Za-z0-9_.-]{1,128}")
	}
	bad.AddIf(c.Name != "" && !adapter.CheckName(c.Name), "HubConfig.Name", c.Name, "must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(c.Tags < 0 || c.Tags > lua.MaxTags, "HubConfig.Tags", c.Tags, "must be 1 to 16384, or 0 for 16")
	bad.AddIf(c.FleetSize < 0, "HubConfig.FleetSize", c.FleetSize, "must not be negative")
	bad.AddSecret("HubConfig.HashKeys", c.HashKeys)
	bad.AddIf(c.SyncTimeout < 0, "HubConfig.SyncTimeout", c.SyncTimeout, "must not be negative")
	return bad
}

// Mode chooses the source of units. All modes run the same code.
type Mode uint8

// The modes.
const (
	// ModeAuto spends leases first, and credit for new keys and for spikes. The fleet may admit Config.Overshoot of a
	// burst early, and repays it.
	ModeAuto = Mode(account.ModeAuto)
	// ModeStrict spends leases only: it admits no unit that Redis has not debited. The first call for a cold key
	// waits one round trip. So does a call when the process's part of the limit is below a unit or two.
	ModeStrict = Mode(account.ModeStrict)
	// ModeDeferred spends credit only: it counts locally and sends the count every K units or after T. No decision
	// waits once a key is warm. The fleet may admit up to a burst early, and repays it. For its first 1.5 s a process
	// does not know how many others there are. It gives no credit then, and each call asks Redis.
	ModeDeferred = Mode(account.ModeDeferred)
	// ModeExact asks Redis for every decision.
	ModeExact = Mode(account.ModeExact)
)

// String returns "auto", "strict", "deferred" or "exact".
func (m Mode) String() string { return account.Mode(m).String() }

// Fallback chooses the rule that decides while Redis does not answer.
type Fallback uint8

// The fallbacks. The zero value keeps the fleet's total near the limit.
const (
	// FallbackShare gives each process limit/N, where N is the last known fleet size,
	// but at least FallbackFloor units at once.
	FallbackShare = Fallback(fallback.KindShare)
	// FallbackFull gives each process the whole limit, so the fleet admits up to N times the limit.
	FallbackFull = Fallback(fallback.KindFull)
	// FallbackAllowAll admits everything.
	FallbackAllowAll = Fallback(fallback.KindAllowAll)
	// FallbackDenyAll denies everything except units that are already leased.
	FallbackDenyAll = Fallback(fallback.KindDenyAll)
)

// String returns "share", "full", "allow_all" or "deny_all".
func (f Fallback) String() string { return fallback.Kind(f).String() }

// rated returns ErrUnsupported for a limit of calls in flight.
func rated(limit hybridlimit.Limit) error {
	if limit.Algorithm != hybridlimit.AlgConcurrent {
		return nil
	}
	return fmt.Errorf("hybrid: %w: the limit (%v) %s", hybridlimit.ErrUnsupported, limit, control.InFlight)
}
