package hybrid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
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

// MaxFleetKeyLimits is the largest number of keys of a limiter with a limit of the fleet.
const MaxFleetKeyLimits = wire.MaxKeyLimits

// ErrFleetKeysFull means that a limiter has no room for the fleet's limit of one more key: it has MaxFleetKeyLimits, or
// their text is longer than 256 KiB.
var ErrFleetKeysFull = errors.New("hybrid: the limiter has no room for the fleet's limit of one more key")

// FleetKeyLimit is a limit that all processes of a fleet decide by for one key, as Redis keeps it.
type FleetKeyLimit struct {
	Key   string            // with HubConfig.HashKeys, the hash that stands for it in Redis
	Limit hybridlimit.Limit // of the key
	At    time.Time         // time at which it was set, by Redis's clock
}

// SetFleetKeyLimit sets the limit of one key of a limiter in all processes. The zero Limit takes it back. It wins over
// Settings.Keys, Config.LimitFor and every limit of the limiter, but not over the limit of a call (AllowLimit). It is
// for an operator in an incident; a limit that stays belongs into Settings.Keys or LimitFor.
//
// Processes hear of it as of SetFleetLimit, within two intervals of heartbeats, and used units stay used. Redis keeps
// it for a day after the last heartbeat, and the fleet restores it in a Redis that has lost it. The limiter is named,
// and need not belong to this hub. If it does, the limit must have its algorithm; otherwise a process ignores a limit
// of another algorithm and logs that. Package global does not hear of it.
//
// It fails with ErrInvalid, ErrEmptyKey or ErrKeyTooLong, or ErrFleetKeysFull, and changes nothing then. It costs one
// message, whatever the state of the breaker, and waits for the answer, at most for HubConfig.SyncTimeout. Without an
// answer it returns ErrUnavailable, and the limit may or may not have been set.
func (h *Hub) SetFleetKeyLimit(ctx context.Context, limiter, key string, limit hybridlimit.Limit) error {
	h.mu.Lock()
	l := h.limiters[limiter]
	h.mu.Unlock()
	longest := 0
	if l != nil {
		longest = l.maxKey
	}
	if err := adapter.CheckRequest(key, 1, longest); err != nil {
		return err
	}
	set := wire.KeyLimit{Key: h.names.Stored(limiter, key)}
	if !wire.FitsKeyLimit(set.Key) {
		return fmt.Errorf("%w: for a limit of the fleet", hybridlimit.ErrKeyTooLong)
	}
	if limit != control.None {
		err := limit.Validate()
		if l != nil && err == nil {
			err = l.control.Fits(limit)
		}
		if err != nil {
			return err
		}
		set.Text = control.LimitText(limit)
	}
	var heard wire.KeyLimits
	err := h.operate(ctx, "limit of a key", limiter, func(ctx context.Context) (err error) {
		heard, err = h.runner.SetKeyLimit(ctx, h.names.KeyLimits(limiter), h.names.Changed(), set, control.TTL)
		return err
	})
	if errors.Is(err, wire.ErrFull) {
		return fmt.Errorf("%w: limiter %q has %d", ErrFleetKeysFull, limiter, MaxFleetKeyLimits)
	}
	if err == nil && l != nil {
		l.control.HearKeys(heard)
		h.heart.Again.Store(true)
	}
	return err
}

// FleetKeyLimits asks Redis for the fleet's limits of the keys of a limiter, sorted by key. Limits that this version
// does not know are zero.
func (h *Hub) FleetKeyLimits(ctx context.Context, limiter string) (all []FleetKeyLimit, err error) {
	var heard wire.KeyLimits
	err = h.operate(ctx, "limits of keys", limiter, func(ctx context.Context) (err error) {
		heard, err = h.runner.KeyLimits(ctx, h.names.KeyLimits(limiter))
		return err
	})
	for _, k := range heard.Of {
		if k.Text != "" {
			limit, _ := hybridlimit.ParseLimit(k.Text)
			all = append(all, FleetKeyLimit{Key: k.Key, Limit: limit, At: time.UnixMicro(k.At)})
		}
	}
	slices.SortFunc(all, func(a, b FleetKeyLimit) int { return cmp.Compare(a.Key, b.Key) })
	return all, err
}

// SetFleetSwitch is Limiter.SetFleetSwitch for a limiter by its name, which need not belong to this hub. It is for a
// tool that is not a process of the fleet. The fleet's processes hear of the switch after their next heartbeats.
// Prefix and Tags must be the same as theirs.
func (h *Hub) SetFleetSwitch(ctx context.Context, limiter string, s Switch) error {
	flag, err := h.setFleetSwitch(ctx, limiter, s)
	if err != nil {
		return err
	}
	h.mu.Lock()
	l := h.limiters[limiter]
	h.mu.Unlock()
	if l != nil {
		l.control.HearSwitch(flag, flag.At)
		h.heart.Again.Store(true)
	}
	return nil
}

// FleetSwitch asks Redis for the fleet's switch of a limiter by its name. It also returns the time at which the
// switch was set, by Redis's clock; the zero Time if it never was.
func (h *Hub) FleetSwitch(ctx context.Context, limiter string) (Switch, time.Time, error) {
	var flag wire.Flag
	err := h.operate(ctx, "switch", limiter, func(ctx context.Context) (err error) {
		flag, err = h.runner.Switch(ctx, h.names.Switch(limiter))
		return err
	})
	if err != nil || flag.At == 0 {
		return SwitchNormal, time.Time{}, err
	}
	return Switch(min(flag.Switch, 255)), time.UnixMicro(flag.At), nil
}

func (h *Hub) setFleetSwitch(ctx context.Context, limiter string, s Switch) (flag wire.Flag, err error) {
	if err := control.Switch(s).Check(); err != nil {
		return flag, err
	}
	err = h.operate(ctx, "switch", limiter, func(ctx context.Context) (err error) {
		flag, err = h.runner.SetSwitch(ctx, h.names.Switch(limiter), h.names.Changed(), int64(s), control.TTL)
		if err == nil && flag.Switch != int64(s) {
			err = fmt.Errorf("%w: the switch was set to %d, but Redis answered %d", wire.ErrReply, s, flag.Switch)
		}
		return err
	})
	return flag, err
}

// operate asks Redis about the fleet's switch or limit of a limiter. It neither asks the breaker nor reports to it,
// because an operator may know better.
func (h *Hub) operate(ctx context.Context, setting, limiter string, ask func(ctx context.Context) error) error {
	if !adapter.CheckName(limiter) {
		var bad adapter.Violations
		bad.Add("limiter", limiter, "must match [A-Za-z0-9_.-]{1,128}")
		return bad.Err("hybrid")
	}
	bounded, cancel := context.WithTimeout(ctx, h.engine.Timeout())
	defer cancel()
	err := ask(bounded)
	h.heart.Messages.Add(1)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case h.ctx.Err() != nil:
		return hybridlimit.ErrClosed
	}
	return fmt.Errorf("hybrid: %s of limiter %q: %w: %w", setting, limiter, hybridlimit.ErrUnavailable, err)
}
