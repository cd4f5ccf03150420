package main

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	poolSize = 40                     // connections to the dependency
	normal   = 100 * time.Millisecond // the time of a call
	slow     = 800 * time.Millisecond // the same in the phase (d)
)

// dependency is the database of the service: each call needs one of the connections
// of a pool. Calls that wait for one are served in their order.
type dependency struct {
	pool chan struct{}
	slow atomic.Bool
}

func newDependency() *dependency { return &dependency{pool: make(chan struct{}, poolSize)} }

// call makes a call that takes some times as long as a normal one, or returns the error of ctx if that has ended.
func (d *dependency) call(ctx context.Context, times time.Duration) error {
	select {
	case d.pool <- struct{}{}:
		defer func() { <-d.pool }()
	case <-ctx.Done():
		return ctx.Err()
	}
	took := normal
	if d.slow.Load() {
		took = slow
	}
	time.Sleep(times * took) // a database finishes a query whose client has left
	return ctx.Err()
}
