package global

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// longest is the MaxDelay of a reservation without a deadline.
const longest = algo.Never - 1 // µs

// Reserve takes n units of key now, of a bucket also such as will have come
// back only later: Delay says when they may be used, and the next callers wait
// behind. At most a burst can be booked ahead. A queue's place is ahead by
// itself, and it has no more of them for who reserves; windows and logs cannot
// be booked ahead: there a reservation is what AllowN is, with a Cancel. A cost
// above the burst is ErrExceedsBurst. Cancel costs a message; of a window it
// gives back to that in which the units were taken, of a log their entry.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error) {
	t, err := l.of(key, n)
	if err != nil {
		return nil, err
	}
	res, back, err := l.book(ctx, key, t, n, longest)
	if err != nil {
		return nil, err
	}
	return hybridlimit.NewReservation(res, func(ctx context.Context) error { return l.giveBack(ctx, key, t, back) }), nil
}

// Wait takes n units of key as soon as they can be had, and returns when they
// may be used: with a queue it is the shaper. Units of buckets, and places in a
// queue that has one, are booked, so that waiting costs one message, and callers
// are served in the order of their booking; else it asks again when RetryAfter
// has passed. It fails at once when ctx's deadline cannot be met
// (context.DeadlineExceeded) or the burst can never hold n (ErrExceedsBurst).
// When ctx ends while it waits the units are given back.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	for {
		t, err := l.of(key, n)
		if err != nil {
			return hybridlimit.Result{}, err
		}
		left := time.Duration(longest) * time.Microsecond
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
		}
		if err := ctx.Err(); err != nil {
			return hybridlimit.Result{}, err
		}
		res, back, err := l.book(ctx, key, t, n, max(1, int64(left/time.Microsecond)))
		if err != nil {
			return hybridlimit.Result{}, err
		}
		wait := res.Delay
		if !res.Allowed {
			wait = res.RetryAfter
		}
		if wait == hybridlimit.Never {
			return res, fmt.Errorf("global: %d units of %q: %w (%d)", n, key, hybridlimit.ErrExceedsBurst, res.Limit)
		}
		if wait >= left {
			if res.Allowed {
				_ = l.giveBack(context.WithoutCancel(ctx), key, t, back) // they come back by themselves at the latest
			}
			return res, fmt.Errorf("global: %v until %d units of %q can be had: %w", wait, n, key, context.DeadlineExceeded)
		}
		if err := l.sleep(ctx, wait); err != nil {
			if res.Allowed {
				_ = l.giveBack(context.WithoutCancel(ctx), key, t, back)
			}
			return hybridlimit.Result{}, err
		}
		if res.Allowed {
			res.Delay = 0
			return res, nil
		}
	}
}

// sleep waits, for ctx to end or the limiter to be closed at the longest.
func (l *Limiter) sleep(ctx context.Context, d time.Duration) error {
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
	case <-l.done:
		return hybridlimit.ErrClosed
	}
}

// book takes n units that can be had within most µs.
func (l *Limiter) book(ctx context.Context, key string, t *terms, n, most int64) (res hybridlimit.Result, back algo.Op, err error) {
	if !t.static() && n > t.limit.BurstSize() {
		return res, back, fmt.Errorf("global: %d units of %q: %w (%d)", n, key, hybridlimit.ErrExceedsBurst, t.limit.BurstSize())
	}
	return l.take(ctx, key, t, n, algo.Op{Asks: []int64{n}, MaxDelay: most})
}

// Refund gives back n units of key, of a call that came to less than was
// taken for it. The key never holds more than when it is full. Of a log they
// are those of the oldest entries, of a window those of the current one.
func (l *Limiter) Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	t, err := l.of(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return l.adjust(ctx, key, t, algo.Op{Refund: n})
}

func (l *Limiter) giveBack(ctx context.Context, key string, t *terms, back algo.Op) error {
	if t.static() {
		return nil
	}
	_, err := l.adjust(ctx, key, t, back)
	return err
}

// Reset forgets what key has used. In hybrid limiters of the same name other
// processes may deny from memory for up to some seconds more.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	t, err := l.of(key, 1)
	if err != nil {
		return err
	}
	_, err = l.adjust(ctx, key, t, algo.Op{Reset: true})
	return err
}

// adjust sends an op that cannot be denied.
func (l *Limiter) adjust(ctx context.Context, key string, t *terms, op algo.Op) (hybridlimit.Result, error) {
	if t.static() {
		res := l.fixed(t, 0)
		res.Allowed, res.RetryAfter = true, 0
		return res, nil
	}
	res := l.blank(t)
	ans, _, err := l.ask(ctx, key, t, op)
	if err != nil {
		return l.unavailable(ctx, res, 0, err)
	}
	res = t.fill(res, ans)
	res.Allowed = true
	return res, nil
}
