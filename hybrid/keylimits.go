package hybrid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// MaxFleetKeyLimits is the largest number of keys of a limiter with a limit of the fleet.
const MaxFleetKeyLimits = wire.MaxKeyLimits

// ErrFleetKeysFull means that a limiter has no room for the fleet's limit of one more key: it has MaxFleetKeyLimits, or their text
// is longer than 256 KiB.
var ErrFleetKeysFull = errors.New("hybrid: the limiter has no room for the fleet's limit of one more key")

// FleetKeyLimit is a limit that all processes of a fleet decide by for one key, as Redis keeps it.
type FleetKeyLimit struct {
	Key   string            // with HubConfig.HashKeys, the hash that stands for it in Redis
	Limit hybridlimit.Limit // of the key
	At    time.Time         // time at which it was set, by Redis's clock
}

// SetFleetKeyLimit sets the limit of one key of a limiter in all processes. The zero Limit takes it back. It wins over
// Settings.Keys, Config.LimitFor and every limit of the limiter, but not over the limit of a call (AllowLimit). It is for an
// operator in an incident; a limit that stays belongs into Settings.Keys or LimitFor.
//
// Processes hear of it as of SetFleetLimit, within two intervals of heartbeats, and used units stay used. Redis keeps it for a day
// after the last heartbeat, and the fleet restores it in a Redis that has lost it. The limiter is named, and need not belong to
// this hub. If it does, the limit must have its algorithm; otherwise a process ignores a limit of another algorithm and logs
// that. Package global does not hear of it.
//
// It fails with ErrInvalid, ErrEmptyKey or ErrKeyTooLong, or ErrFleetKeysFull, and changes nothing then. It costs one message,
// whatever the state of the breaker, and waits for the answer, at most for HubConfig.SyncTimeout. Without an answer it returns
// ErrUnavailable, and the limit may or may not have been set.
func (h *Hub) SetFleetKeyLimit(ctx context.Context, limiter, key string, limit hybridlimit.Limit) error {
	h.mu.Lock()
	l := h.limiters[limiter]
	h.mu.Unlock()
	longest := 0
	if l != nil {
		longest = l.cfg.MaxKeyBytes
	}
	if err := hybridlimit.CheckRequest(key, 1, longest); err != nil {
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

// FleetKeyLimits asks Redis for the fleet's limits of the keys of a limiter, sorted by key. Limits that this version does not know
// are zero.
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
