// Package waiting implements Wait for limiters that book units in Redis: it books
// units, waits until they may be used, and gives them back if the wait fails. It
// makes no decisions and does not call Redis itself.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Caller describes a waiting call.
type Caller struct {
	Package string          // the package, for errors
	Key     string          // the key, for errors
	N       int64           // units, for errors
	Done    <-chan struct{} // closed with the limiter
	Longest time.Duration   // the longest wait without a deadline
}

// Book takes the caller's units if they may be used within most. back gives them
// back. Nil: nothing was taken.
type Book func(most time.Duration) (res hybridlimit.Result, back func(context.Context) error, err error)

// Wait books units and waits until they may be used. After a denial it books again
// when the units are there. It fails at once if it cannot meet the deadline of ctx
// (context.DeadlineExceeded), or if the cost is above the burst
// (hybridlimit.ErrExceedsBurst). If the wait fails, Wait gives the units back; if
// that fails too, the error joins both.
func (c Caller) Wait(ctx context.Context, book Book) (hybridlimit.Result, error) {
	for {
		if err := ctx.Err(); err != nil {
			return hybridlimit.Result{}, err
		}
		left := c.Longest
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
		}
		res, back, err := book(left)
		if err != nil {
			return hybridlimit.Result{}, err
		}
		wait := res.Delay
		if !res.Allowed {
			wait = res.RetryAfter
		}
		switch {
		case wait == hybridlimit.Never:
			err = fmt.Errorf("%s: cost %d of key %q: %w (%d)", c.Package, c.N, c.Key, hybridlimit.ErrExceedsBurst, res.Limit)
		case wait >= left:
			err = fmt.Errorf("%s: it takes %v until %d units of key %q are available: %w", c.Package, wait, c.N, c.Key, context.DeadlineExceeded)
		default:
			err = Sleep(ctx, c.Done, wait)
		}
		switch {
		case err != nil && back != nil:
			return hybridlimit.Result{}, errors.Join(err, back(context.WithoutCancel(ctx)))
		case err != nil:
			return res, err
		case res.Allowed:
			res.Delay = 0
			return res, nil
		}
	}
}

// Sleep waits for d. It returns early, with an error, if ctx ends (the error of ctx)
// or done is closed (hybridlimit.ErrClosed).
func Sleep(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return hybridlimit.ErrClosed
	}
}
