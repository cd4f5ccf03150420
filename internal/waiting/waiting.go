// Package waiting is what Wait is of a limiter that books with Redis: take
// units, wait until they may be used, and give them back if that comes to
// nothing. It makes no decision, and knows no Redis.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Caller is who waits, and for what.
type Caller struct {
	Package string          // that errors name
	Key     string          // as errors name it
	N       int64           // units, as errors name them
	Done    <-chan struct{} // closed with the limiter
	Longest time.Duration   // that is waited without a deadline
}

// Book takes the caller's units if they can be had within most. back gives
// them back; nil: nothing was taken.
type Book func(most time.Duration) (res hybridlimit.Result, back func(context.Context) error, err error)

// Wait books and waits, and books again when what was denied can be had. It
// fails at once when ctx's deadline cannot be met (context.DeadlineExceeded) or
// the burst can never hold as much (hybridlimit.ErrExceedsBurst). What was taken
// in vain is given back; that it could not be is part of the error.
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
			err = fmt.Errorf("%s: %d units of %q: %w (%d)", c.Package, c.N, c.Key, hybridlimit.ErrExceedsBurst, res.Limit)
		case wait >= left:
			err = fmt.Errorf("%s: %v until %d units of %q can be had: %w", c.Package, wait, c.N, c.Key, context.DeadlineExceeded)
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

// Sleep waits for d, for ctx to end (its error), or for done to be closed
// (hybridlimit.ErrClosed).
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
