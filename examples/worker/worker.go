package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

type caller interface {
	Call(ctx context.Context) error
}

// waiter is what a worker asks: limiters of local, global and hybrid do.
type waiter interface {
	Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

// work does jobs as they come, each when the limit has room for it.
func work(ctx context.Context, jobs <-chan int, limiter waiter, api caller) error {
	for range jobs {
		if limiter != nil {
			// It returns when the call may go on. Where ctx ends first, or would,
			// the units go back and the job is still to be done.
			if _, err := limiter.Wait(ctx, "partner", 1); err != nil {
				return err
			}
		}
		if err := api.Call(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runProcess is one process of the fleet: a limiter that all of them share
// through Redis, and its workers.
func runProcess(ctx context.Context, rdb redis.UniversalClient, api caller, shaped bool) (err error) {
	var limiter waiter
	if shaped {
		l, err := hybrid.New(rdb, pace, hybrid.Config{Name: "partner", MaxWait: 100 * time.Millisecond})
		if err != nil {
			return err
		}
		defer l.Shutdown(context.WithoutCancel(ctx))
		if err := l.Ready(ctx); err != nil {
			return err
		}
		limiter = l
	}
	queue := make(chan int, jobs)
	for i := range jobs {
		queue <- i
	}
	close(queue)
	var wg sync.WaitGroup
	failed := make([]error, workers)
	for i := range workers {
		wg.Go(func() { failed[i] = work(ctx, queue, limiter, api) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// runFleet runs the processes side by side.
func runFleet(ctx context.Context, connect func() redis.UniversalClient, api caller, shaped bool) error {
	var wg sync.WaitGroup
	failed := make([]error, processes)
	for i := range processes {
		wg.Go(func() {
			rdb := connect()
			defer rdb.Close()
			failed[i] = runProcess(ctx, rdb, api, shaped)
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}
