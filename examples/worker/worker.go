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

// waiter is the part of a limiter that a worker needs. The limiters of local, global and hybrid have it.
type waiter interface {
	Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

// work does the jobs in order, each when the limit permits it.
func work(ctx context.Context, jobs <-chan int, limiter waiter, api caller) error {
	for range jobs {
		if limiter != nil {
			// Wait returns when the call may go on. If ctx ends first, or would
			// end first, the units go back and the job is not done.
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

// runProcess is one process of the fleet. It has a limiter, which all processes share through Redis, and its workers.
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

// runFleet runs the processes in parallel.
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
