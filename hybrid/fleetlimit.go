package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
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

// Validate returns the violations, as SetFleetLimit does. The zero FleetLimit is valid.
func (f FleetLimit) Validate() error { return control.FleetLimit(f).Violations().Err("hybrid") }

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
	if l.control.Closed.Load() {
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
	if l != nil && f.Limit != control.None {
		err = errors.Join(err, l.control.Fits(f.Limit))
	}
	if err != nil {
		return err
	}
	var heard wire.FleetLimit
	text := control.FleetLimit(f).Text()
	err = h.operate(ctx, "limit", limiter, func(ctx context.Context) (err error) {
		heard, err = h.runner.SetFleetLimit(ctx, h.names.FleetLimit(limiter), h.names.Changed(), text, control.TTL)
		if err == nil && heard.Text != text {
			err = fmt.Errorf("%w: the limit was set to %q, but Redis answered %q", wire.ErrReply, text, heard.Text)
		}
		return err
	})
	if err == nil && l != nil {
		l.control.HearLimit(heard, heard.At)
		h.heart.Again.Store(true)
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
	f, err := control.ParseFleetLimit(word.Text)
	if err != nil {
		return FleetLimit{}, fmt.Errorf("hybrid: limit of limiter %q in Redis: %w", limiter, err)
	}
	f.At = time.UnixMicro(word.At)
	return FleetLimit(f), nil
}
