package global

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
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
	if _, err := l.of(key, n); err != nil {
		return hybridlimit.Result{}, err
	}
	who := waiting.Caller{Package: "global", Key: key, N: n, Done: l.done, Longest: longest * time.Microsecond}
	return who.Wait(ctx, func(most time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
		t, err := l.of(key, n)
		if err != nil {
			return hybridlimit.Result{}, nil, err
		}
		res, back, err := l.book(ctx, key, t, n, max(1, int64(most/time.Microsecond)))
		if err != nil || !res.Allowed {
			return res, nil, err
		}
		return res, func(ctx context.Context) error { return l.giveBack(ctx, key, t, back) }, nil
	})
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
