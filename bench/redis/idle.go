package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// idleLimiter is the row of the limiter that gets no calls.
const idleLimiter = "idle limiter"

// idle measures the cost of a limiter that holds keys and gets no calls: as many seconds before the limiter is made as
// after.
func (r *results) idle(ctx context.Context, srv *benchkit.Redis) error {
	if err := srv.Admin.FlushAll(ctx).Err(); err != nil {
		return err
	}
	w := new(benchkit.Wire)
	rdb := srv.Client(w)
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return err
	}
	if err := r.seconds(ctx, "no limiter", 0, benchkit.Meter{Redis: srv, Wire: w}); err != nil {
		return err
	}
	keys := r.scale.idleKeys
	l, err := hybrid.New(rdb, hybridlimit.PerSecond(1000), patient(hybrid.Config{Name: "idle", MaxKeys: 2 * keys}))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := settled(l, ctx); err != nil {
		return err
	}
	const callers = 512 // enough to keep Redis busy
	if err := benchkit.Spread(callers, func(g int) error {
		for i := g; i < keys; i += callers {
			if _, err := l.Allow(ctx, fmt.Sprintf("idle-%012d", i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	time.Sleep(r.scale.settle) // until nothing is owed and leases have ended
	return r.seconds(ctx, idleLimiter, l.Stats().Keys, benchkit.Meter{Redis: srv, Wire: w})
}

// patient adapts a configuration to a shared machine: no call times out, and the breaker stays closed.
func patient(c hybrid.Config) hybrid.Config {
	c.MaxWait, c.Hub.SyncTimeout, c.Hub.Logger = 10*time.Second, 10*time.Second, quiet
	c.Hub.Breaker.Failures, c.Hub.Breaker.FailureRatio, c.Hub.Breaker.SlowCall = 1<<20, -1, -1
	return c
}

// seconds adds the figures of seconds without a decision.
func (r *results) seconds(ctx context.Context, name string, keys int, m benchkit.Meter) error {
	for range r.scale.rounds {
		s, err := m.Spent(ctx, func() error {
			time.Sleep(time.Second)
			return nil
		})
		if err != nil {
			return err
		}
		r.Add("idle", "", name, benchkit.Figures{
			"process": float64(s.Process.Microseconds()) / 1000, "redis": float64(s.Redis.Microseconds()) / 1000, // ms
			"messages": float64(s.Messages), "keys": float64(keys),
		})
	}
	return nil
}
