package main

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// ownCPU returns the CPU time of this process, user and system together.
func ownCPU() (time.Duration, error) {
	var r syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), err
}

// idling has the figures of a second without a decision.
type idling struct {
	process, redis float64 // CPU, µs
	messages       float64
}

// idleRows has the figures without a limiter, and with one that holds keys.
type idleRows struct {
	keys          int
	without, with series[idling]
}

// idle measures the cost of a limiter that holds keys and gets no calls: as
// many seconds before the limiter is made as after.
func idle(ctx context.Context, srv *server, rounds, keys int, settle time.Duration) (rows idleRows, err error) {
	if err = srv.wipe(ctx); err != nil {
		return rows, err
	}
	w := new(wire)
	rdb := srv.client(w)
	defer rdb.Close()
	if err = rdb.Ping(ctx).Err(); err != nil {
		return rows, err
	}
	if rows.without, err = seconds(ctx, srv, w, rounds); err != nil {
		return rows, err
	}
	l, err := hybrid.New(rdb, hybridlimit.PerSecond(1000), patient(hybrid.Config{Name: "idle", MaxKeys: 2 * keys}))
	if err != nil {
		return rows, err
	}
	defer l.Close()
	if err = settled(ctx, l); err != nil {
		return rows, err
	}
	if err = fill(ctx, l, "idle", keys); err != nil {
		return rows, err
	}
	time.Sleep(settle) // until nothing is owed and leases have ended
	rows.keys = l.Stats().Keys
	rows.with, err = seconds(ctx, srv, w, rounds)
	return rows, err
}

// patient adapts a configuration to a shared machine: no call times out, and the breaker stays closed.
func patient(c hybrid.Config) hybrid.Config {
	c.MaxWait = 10 * time.Second
	c.Hub.SyncTimeout, c.Hub.Breaker.Failures, c.Hub.Breaker.FailureRatio, c.Hub.Breaker.SlowCall = 10*time.Second, 1<<20, -1, -1
	c.Hub.Logger = quiet
	return c
}

// fill asks once for each of many keys, from enough goroutines to keep Redis busy.
func fill(ctx context.Context, l hybridlimit.Limiter, prefix string, keys int) error {
	const at = 512
	errs := make(chan error, at)
	var wg sync.WaitGroup
	for g := range at {
		wg.Go(func() {
			for i := g; i < keys; i += at {
				if _, err := l.Allow(ctx, fmt.Sprintf("%s-%012d", prefix, i)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func seconds(ctx context.Context, srv *server, w *wire, rounds int) (out series[idling], err error) {
	for range rounds {
		redis, err := srv.cpu(ctx)
		if err != nil {
			return out, err
		}
		own, err := ownCPU()
		if err != nil {
			return out, err
		}
		before := w.traffic()
		time.Sleep(time.Second)
		own2, err := ownCPU()
		if err != nil {
			return out, err
		}
		redis2, err := srv.cpu(ctx)
		if err != nil {
			return out, err
		}
		out = append(out, idling{
			process: float64((own2 - own).Microseconds()), redis: float64((redis2 - redis).Microseconds()),
			messages: float64(w.traffic().since(before).messages),
		})
	}
	return out, nil
}
