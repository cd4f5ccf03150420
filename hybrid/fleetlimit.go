package hybrid

import (
	"hash/fnv"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// FleetLimit is a limit that all processes of a fleet decide by, as Redis keeps it.
type FleetLimit struct {
	Limit hybridlimit.Limit // zero: none
	// Part is the part of the keys that have the limit, from 0.0001 to 1, in steps of 0.0001. All processes choose the
	// same keys, by a hash, because processes with different limits for one key would clip each other's units. A larger
	// Part has all keys of a smaller one. Zero: 1.
	Part float64
	// At is the time at which the limit was set, by Redis's clock. SetFleetLimit ignores it.
	At time.Time
}

// parts is the number of parts into which a hash divides the keys.
const parts = 10_000

// all reports whether the limit is for all keys.
func (f FleetLimit) all() bool { return f.Part == 0 || f.Part == 1 }

// Validate returns the violations, as SetFleetLimit does. The zero FleetLimit is valid.
func (f FleetLimit) Validate() error { return f.violations().Err("hybrid") }

func (f FleetLimit) violations() hybridlimit.Violations {
	var bad hybridlimit.Violations
	if f.Limit != (hybridlimit.Limit{}) {
		bad.AddLimit(f.Limit)
	}
	if p := f.Part; p != 0 && (!(p >= 0 && p <= 1) || math.Abs(p*parts-math.Round(p*parts)) > 1e-6 || math.Round(p*parts) == 0) {
		bad.Add("FleetLimit.Part", p, "must be 0.0001 to 1, in steps of 0.0001, or 0 for 1")
	}
	return bad
}

// text returns the limit as Redis keeps it: "100/s burst 200", "0.05 100/s burst 200" for a part, "" for none.
func (f FleetLimit) text() string {
	if f.Limit == (hybridlimit.Limit{}) {
		return ""
	}
	if f.all() {
		return limitText(f.Limit)
	}
	return strconv.FormatFloat(f.Part, 'g', -1, 64) + " " + limitText(f.Limit)
}

// parseFleetLimit parses the result of text.
func parseFleetLimit(text string) (f FleetLimit, err error) {
	if text == "" {
		return f, nil
	}
	if part, rest, ok := strings.Cut(text, " "); ok && !strings.Contains(part, "/") {
		if p, err := strconv.ParseFloat(part, 64); err == nil {
			f.Part, text = p, rest
		}
	}
	if f.Limit, err = hybridlimit.ParseLimit(text); err != nil {
		return FleetLimit{}, err
	}
	if err := f.Validate(); err != nil {
		return FleetLimit{}, err
	}
	return f, nil
}

// canary is a limit for a part of the keys.
type canary struct {
	limit FleetLimit
	plan  *account.Plan
}

// is reports whether the canary is that limit. Nil is the zero limit.
func (c *canary) is(f FleetLimit) bool {
	if c == nil {
		return f.Limit == (hybridlimit.Limit{})
	}
	return c.limit.Limit == f.Limit && c.limit.Part == f.Part
}

// has reports whether a key belongs to the part. All processes and versions must agree on it.
func (c *canary) has(limiter, key string) bool {
	h := fnv.New64a()
	h.Write([]byte(limiter))
	h.Write([]byte{0})
	h.Write([]byte(key))
	sum := h.Sum64()
	sum ^= sum >> 32 // the low bits of FNV-1a are weak for short strings
	sum *= 0x9e3779b97f4a7c15
	return float64((sum>>32)%parts) < math.Round(c.limit.Part*parts)
}

// heardLimit notes the fleet's limit as Redis reported it at now (µs of its time). The later of two settings counts, as
// for the switch: see heardSwitch. A text that this process cannot apply counts as no limit of the fleet, and is logged.
func (l *Limiter) heardLimit(heard wire.FleetLimit, now int64) {
	var refused error
	l.changeLimit(func(w *limits) {
		if heard == w.heard || heard.At < w.heard.At && (heard.At == 0 || w.heard.At <= now) {
			return
		}
		w.heard = heard
		f, err := parseFleetLimit(heard.Text)
		if err == nil && f.Limit != (hybridlimit.Limit{}) {
			err = sameAlgorithm(f.Limit, l.plan.Load())
		}
		if err != nil {
			refused, f = err, FleetLimit{}
		}
		if heard.At > 0 {
			f.At = time.UnixMicro(heard.At)
		}
		w.fleet = f
	})()
	if refused != nil {
		l.hub.log.event(msgOddLimit, slog.String("limiter", l.cfg.Name), slog.String("limit", heard.Text), slog.Any("error", refused))
	}
}

// toldLimit returns the fleet's limit as the limiter last heard it.
func (l *Limiter) toldLimit() wire.FleetLimit {
	w := &l.limits
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}
