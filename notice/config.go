package notice

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// Config configures a Limiter. Only On is required.
type Config struct {
	// At are the thresholds, as parts of the Rate of a key's limit: above 0, at most 1, each once, at most 32. A key
	// crosses 0.8 of 10 units with the eighth. Nil: 0.8 and 1.
	At []float64
	// On is told each crossing, one at a time, by the goroutine of the Limiter. It delays no decision. A slow On delays
	// other crossings, and the looks at keys. 1024 crossings wait for it. Further ones are seen again by a later call
	// or look, or are lost when their window is over (Stats.Lost). A panic of On is logged and counted, and its
	// crossing is not told again. On must not call Close. Required.
	On func(Crossing)
	// MaxKeys bounds the keys in memory. A new key replaces the one that was used least recently. A crossing of a key
	// that comes back in the same window is told again. Zero: 100 000.
	MaxKeys int
	// Logger receives panics, crossings that are lost, looks without an answer, and keys whose limit has no window: at
	// most one line a minute and kind. It has no keys. Nil: slog.Default().
	Logger *slog.Logger
}

// Crossing says that a key has used a part of its limit.
type Crossing struct {
	// ID is the same in all processes, and another one for each limiter, key, window and threshold: 32 hex digits.
	// Give limiters of one receiver different names. It is no secret: who knows the name of the limiter can test a
	// guess of the key.
	ID string
	// Limiter is the limiter's name.
	Limiter string
	// Key is the key as the limiter was asked.
	Key string
	// At is the threshold that was crossed, of Config.At.
	At float64
	// Used is the number of units that were used at least when the crossing was seen. One call may cross several
	// thresholds, with one Used.
	Used int64
	// Limit is the Rate of the key's limit. For a class it is that of the limiter itself: a floor takes nothing off.
	Limit int64
	// Begin and End are those of the window, in UTC.
	Begin, End time.Time
}

const (
	defaultMaxKeys = 100_000
	mostThresholds = 32 // the bits of a mask
)

var defaultAt = []float64{0.8, 1}

// check returns all violations of the arguments of New.
func check(limiter hybridlimit.Limiter, cfg Config) error {
	var bad adapter.Violations
	checkLimiter(&bad, limiter)
	bad.AddIf(cfg.On == nil, "Config.On", nil, "is required")
	bad.AddIf(cfg.MaxKeys < 0, "Config.MaxKeys", cfg.MaxKeys, "must not be negative")
	bad.AddIf(cfg.At != nil && len(cfg.At) == 0, "Config.At", cfg.At, "must have a threshold, or be nil for 0.8 and 1")
	if n := len(cfg.At); n > mostThresholds {
		bad.Add("Config.At", n, fmt.Sprintf("must not have more than %d thresholds", mostThresholds))
	}
	for i, at := range cfg.At {
		field := fmt.Sprintf("Config.At[%d]", i)
		if !(at > 0 && at <= 1) { // written so that NaN is a violation too
			bad.Add(field, at, "must be above 0 and at most 1")
		} else if slices.Contains(cfg.At[:i], at) {
			bad.Add(field, at, "is there twice")
		}
	}
	return bad.Err("notice")
}

func checkLimiter(bad *adapter.Violations, limiter hybridlimit.Limiter) {
	if isNil(limiter) {
		bad.Add("limiter", nil, "must not be nil")
		return
	}
	name := fmt.Sprintf("%T", limiter)
	if _, holds := limiter.(hybridlimit.Acquirer); holds {
		bad.Add("limiter", name, "counts calls in flight, which have no period")
		return
	}
	_, describes := limiter.(adapter.Describer)
	bad.AddIf(!describes, "limiter", name, "must describe its limits (adapter.Describer)")
	bad.AddIf(peekerOf(limiter) == nil, "limiter", name, "must have the method Peek of local, global and hybrid")
	if !describes {
		return
	}
	if limit, ok := anyLimit(limiter); ok && !windowed(limit) && !stateless(limit) {
		bad.Add("limiter", limit.String(), fmt.Sprintf("must count in windows: a %v has no period", limit.Algorithm))
	}
}

// anyLimit returns the limit of some key: all keys have one algorithm. ok is false if LimitFor panics, because it does
// not expect such a key.
func anyLimit(limiter hybridlimit.Limiter) (limit hybridlimit.Limit, ok bool) {
	defer func() { ok = recover() == nil }()
	return wholeOf(limiter).Policy("").Limit, true
}

func stateless(l hybridlimit.Limit) bool {
	return l.Algorithm == hybridlimit.AlgUnlimited || l.Algorithm == hybridlimit.AlgBlocked
}

// wholeOf returns the limiter that has the whole limit of a class, or the limiter itself.
func wholeOf(limiter hybridlimit.Limiter) adapter.Describer {
	if c, ok := news.Inner(limiter).(adapter.Classer); ok {
		whole := c.ForClass(hybridlimit.ClassCritical)
		if d, ok := whole.(adapter.Describer); ok && peekerOf(whole) != nil {
			return d
		}
	}
	return limiter.(adapter.Describer)
}
