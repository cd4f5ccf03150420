package control

import (
	"hash/fnv"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// FleetLimit is hybrid.FleetLimit: a limit of the fleet, for all keys or for a part of them.
type FleetLimit struct {
	Limit hybridlimit.Limit
	Part  float64
	At    time.Time
}

// parts is the number of parts into which a hash divides the keys.
const parts = 10_000

// all reports whether the limit is for all keys.
func (f FleetLimit) all() bool { return f.Part == 0 || f.Part == 1 }

// Violations returns the violations. The zero FleetLimit is valid.
func (f FleetLimit) Violations() adapter.Violations {
	var bad adapter.Violations
	if f.Limit != None {
		bad.AddLimit(f.Limit)
	}
	if p := f.Part; p != 0 && (!(p >= 0 && p <= 1) || math.Abs(p*parts-math.Round(p*parts)) > 1e-6 || math.Round(p*parts) == 0) {
		bad.Add("FleetLimit.Part", p, "must be 0.0001 to 1, in steps of 0.0001, or 0 for 1")
	}
	return bad
}

// Text returns the limit as Redis keeps it: "100/s burst 200", "0.05 100/s burst 200" for a part, "20 concurrent" for
// calls in flight, "" for none.
func (f FleetLimit) Text() string {
	if f.Limit == None {
		return ""
	}
	if f.all() {
		return LimitText(f.Limit)
	}
	return strconv.FormatFloat(f.Part, 'g', -1, 64) + " " + LimitText(f.Limit)
}

// ParseFleetLimit parses the result of Text.
func ParseFleetLimit(text string) (f FleetLimit, err error) {
	if text == "" {
		return f, nil
	}
	if part, rest, ok := strings.Cut(text, " "); ok && !strings.Contains(part, "/") && rest != "concurrent" {
		if p, err := strconv.ParseFloat(part, 64); err == nil {
			f.Part, text = p, rest
		}
	}
	if f.Limit, err = hybridlimit.ParseLimit(text); err != nil {
		return FleetLimit{}, err
	}
	if err := f.Violations().Err("hybrid"); err != nil {
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
		return f.Limit == None
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

// HearLimit notes the fleet's limit as Redis reported it at now (µs of its time). The later of two settings counts, as
// for the switch: see HearSwitch. A text that this process cannot apply counts as no limit of the fleet, and is logged.
func (c *Control) HearLimit(heard wire.FleetLimit, now int64) {
	var refused error
	c.change(func(w *limits) {
		if heard == w.heard || heard.At < w.heard.At && (heard.At == 0 || w.heard.At <= now) {
			return
		}
		w.heard = heard
		f, err := ParseFleetLimit(heard.Text)
		if err == nil && f.Limit != None {
			err = c.Fits(f.Limit)
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
		c.cfg.Log.Event(tell.MsgOddLimit, slog.String("limiter", c.cfg.Name), slog.String("limit", heard.Text), slog.Any("error", refused))
	}
}

// HeardLimit returns the fleet's limit as last heard.
func (c *Control) HeardLimit() wire.FleetLimit {
	w := &c.limits
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}
