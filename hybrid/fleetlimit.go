package hybrid

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

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
	if f.Limit != noLimit {
		bad.AddLimit(f.Limit)
	}
	if p := f.Part; p != 0 && (!(p >= 0 && p <= 1) || math.Abs(p*parts-math.Round(p*parts)) > 1e-6 || math.Round(p*parts) == 0) {
		bad.Add("FleetLimit.Part", p, "must be 0.0001 to 1, in steps of 0.0001, or 0 for 1")
	}
	return bad
}

// text returns the limit as Redis keeps it: "100/s burst 200", "0.05 100/s burst 200" for a part, "20 concurrent" for calls
// in flight, "" for none.
func (f FleetLimit) text() string {
	if f.Limit == noLimit {
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
	if part, rest, ok := strings.Cut(text, " "); ok && !strings.Contains(part, "/") && rest != "concurrent" {
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

// SetFleetLimit sets the limit of all processes that share this limiter's limit. The zero FleetLimit takes it back. This
// process applies it at once, and the others with the settings that they read after their next heartbeat, within two
// intervals of heartbeats (2 s in a fleet of up to 500 processes). Used units stay used, as with SetLimit. Until all have
// heard of it, each op counts by the limit of its sender, and the bound is that of the larger limit.
//
// Redis keeps the limit, and the fleet restores it in a Redis that has lost it. While Redis does not answer, processes
// keep the limit that they heard last, and a process that starts decides by its own. A limiter of package global has no
// heartbeat and does not hear of it.
//
// It fails with ErrInvalid, and changes nothing, if the limit has another algorithm than this limiter. It costs one
// message, whatever the state of the breaker, and waits for the answer, at most for HubConfig.SyncTimeout. Without an
// answer it returns ErrUnavailable, and the limit may or may not have been set.
func (l *Limiter) SetFleetLimit(ctx context.Context, f FleetLimit) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	return l.hub.SetFleetLimit(ctx, l.cfg.Name, f)
}

// SetFleetLimit is Limiter.SetFleetLimit for a limiter by its name, which need not belong to this hub. It is for a tool
// that is not a process of the fleet. If the limiter does not belong to this hub, its algorithm is not known: a process
// ignores a limit of another algorithm, and logs that. Prefix and Tags must be the same as the processes'.
func (h *Hub) SetFleetLimit(ctx context.Context, limiter string, f FleetLimit) error {
	h.mu.Lock()
	l := h.limiters[limiter]
	h.mu.Unlock()
	err := f.Validate()
	if l != nil && f.Limit != noLimit {
		err = errors.Join(err, l.fits(f.Limit, l.plan.Load()))
	}
	if err != nil {
		return err
	}
	var heard wire.FleetLimit
	err = h.operate(ctx, "limit", limiter, func(ctx context.Context) (err error) {
		heard, err = h.runner.SetFleetLimit(ctx, h.names.FleetLimit(limiter), h.names.Changed(), f.text(), switchTTL)
		if err == nil && heard.Text != f.text() {
			err = fmt.Errorf("%w: the limit was set to %q, but Redis answered %q", wire.ErrReply, f.text(), heard.Text)
		}
		return err
	})
	if err == nil && l != nil {
		l.heardLimit(heard, heard.At)
		h.heart.news.again.Store(true)
	}
	return err
}

// FleetLimit asks Redis for the fleet's limit of a limiter by its name. Limit is zero if there is none. At is zero if
// there never was one. The error is ErrInvalid if Redis has a limit that this version does not know.
func (h *Hub) FleetLimit(ctx context.Context, limiter string) (FleetLimit, error) {
	var word wire.FleetLimit
	err := h.operate(ctx, "limit", limiter, func(ctx context.Context) (err error) {
		word, err = h.runner.FleetLimit(ctx, h.names.FleetLimit(limiter))
		return err
	})
	if err != nil || word.At == 0 {
		return FleetLimit{}, err
	}
	f, err := parseFleetLimit(word.Text)
	if err != nil {
		return FleetLimit{}, fmt.Errorf("hybrid: limit of limiter %q in Redis: %w", limiter, err)
	}
	f.At = time.UnixMicro(word.At)
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
		return f.Limit == noLimit
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
		if err == nil && f.Limit != noLimit {
			err = l.fits(f.Limit, l.plan.Load())
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
		l.hub.log.Event(tell.MsgOddLimit, slog.String("limiter", l.cfg.Name), slog.String("limit", heard.Text), slog.Any("error", refused))
	}
}

// toldLimit returns the fleet's limit as the limiter last heard it.
func (l *Limiter) toldLimit() wire.FleetLimit {
	w := &l.limits
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}
