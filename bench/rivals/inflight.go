package rivals

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// InFlightRival is a limiter of calls in flight that can be measured.
type InFlightRival struct {
	Name string // for tables and benchmark names: without spaces and slashes
	What string // the measured call
	// Open opens the limiter of one process. Env.Limit is hybridlimit.Concurrent, and
	// Env.Redis is required. Processes with the same Name and Redis share the limit.
	Open func(Env) (InFlight, error)
}

// InFlight is an open limiter of calls in flight, of one process.
type InFlight interface {
	// Acquire reports whether a call may run. If so, release must be called at its end; only its first call has an
	// effect. Acquire does not wait for a place. It is safe for concurrent use.
	Acquire(ctx context.Context, key string) (release func(), ok bool, err error)
	// Messages returns the number of messages to Redis so far, for calls and for all
	// else: heartbeats, renewals, scripts that Redis does not know.
	Messages() int64
	Close() error
}

// InFlightWarmer is a limiter of calls in flight that needs a warm-up.
type InFlightWarmer interface {
	// Warm waits until the limiter is warm for a key. One call of key must be free.
	Warm(ctx context.Context, key string) error
}

// AllInFlight has every limiter of calls in flight, in the order of the tables. That of this library is last.
var AllInFlight = []InFlightRival{sortedSet, ourConcurrency}

// permitsOf returns the number of calls that a limit of calls in flight admits.
func permitsOf(l hybridlimit.Limit) (int64, error) {
	if l.Algorithm != hybridlimit.AlgConcurrent {
		return 0, fmt.Errorf("rivals: Env.Limit (%v) must be a limit of calls in flight", l)
	}
	return l.BurstSize(), l.Validate()
}

// ourConcurrency is a limiter with default settings, in a hub of its own.
var ourConcurrency = InFlightRival{
	Name: "hybrid", What: "ConcurrencyLimiter.Acquire and Permit.Release",
	Open: func(env Env) (InFlight, error) {
		if _, err := permitsOf(env.Limit); err != nil {
			return nil, err
		}
		h, err := hybrid.NewHub(env.Redis, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		l, err := h.Concurrency(env.Limit, hybrid.ConcurrencyConfig{Name: name(env)})
		if err != nil {
			h.Close()
			return nil, err
		}
		return concurrencyLimiter{h, l}, nil
	},
}

type concurrencyLimiter struct {
	hub *hybrid.Hub
	l   *hybrid.ConcurrencyLimiter
}

func (a concurrencyLimiter) Acquire(ctx context.Context, key string) (release func(), ok bool, err error) {
	p, res, err := a.l.Acquire(ctx, key)
	if err != nil || !res.Allowed {
		return nil, false, err
	}
	return p.Release, true, nil
}

func (a concurrencyLimiter) Messages() int64 { return int64(a.hub.Stats().Messages) }

// Warm waits until Redis, and not the fallback, decides for a key. Redis grants the
// first permit of a tag after it has learnt which permits are held.
func (a concurrencyLimiter) Warm(ctx context.Context, key string) error {
	return until(ctx, func() bool {
		p, res, err := a.l.Acquire(ctx, key)
		p.Release()
		return err == nil && res.Allowed && res.Source != hybridlimit.SourceFallback
	})
}

func (a concurrencyLimiter) Close() error { return a.hub.Close() }
