package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
)

// Wait takes n units of key and returns when they may be used. The Result describes the moment at which the units were
// taken, with Delay 0, because the delay is over. After an error the caller holds no units. The errors are:
//
//   - the errors of AllowN;
//   - hybridlimit.ErrExceedsBurst for an n above the burst;
//   - at once, an error that wraps context.DeadlineExceeded, if ctx ends before the units can be available;
//   - the error of ctx, if it ends during the wait. The units are given back as by Cancel of a Reservation;
//   - hybridlimit.ErrClosed, if the limiter is closed during the wait.
//
// Buckets and queues serve calls in order, up to a burst of debt or a full queue. A queue also spaces the calls out.
// Beyond that, and always with windows and logs, callers try again when they could succeed. The first caller to try
// gets the units, so a large cost may wait long beside many small ones. Wait costs a timer and no goroutine.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	for {
		if err := ctx.Err(); err != nil {
			return hybridlimit.Result{}, fmt.Errorf("local: %w", err)
		}
		now, most := time.Now(), hybridlimit.Never
		if deadline, ok := ctx.Deadline(); ok {
			if most = deadline.Sub(now); most < 0 { // the timer of ctx is late
				return hybridlimit.Result{}, fmt.Errorf("local: %w", context.DeadlineExceeded)
			}
		}
		res, held, err := l.book(now.Sub(l.start), key, n, most, l.request(ctx))
		if err != nil {
			return hybridlimit.Result{}, err
		}
		if res.RetryAfter == hybridlimit.Never {
			return res, fmt.Errorf("local: %w", hybridlimit.ErrExceedsBurst)
		}
		if held.soonest > most {
			return hybridlimit.Result{}, fmt.Errorf("local: a wait of %v would exceed the deadline: %w", held.soonest, context.DeadlineExceeded)
		}
		if res.Allowed {
			if err := l.sleep(ctx, res.Delay); err != nil {
				l.cancel(l.now(), key, held)
				return hybridlimit.Result{}, err
			}
			res.Delay = 0
			return res, nil
		}
		if err := l.sleep(ctx, res.RetryAfter); err != nil {
			return hybridlimit.Result{}, err
		}
	}
}

// sleep waits for d unless ctx ends or the limiter is closed.
func (l *Limiter) sleep(ctx context.Context, d time.Duration) error {
	switch err := waiting.Sleep(ctx, l.closed, d); {
	case err == nil:
		return nil
	case errors.Is(err, hybridlimit.ErrClosed):
		return errClosed
	default:
		return fmt.Errorf("local: %w", err)
	}
}
