package global

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
)

// longest is the MaxDelay of a reservation without a deadline, in µs.
const longest = algo.Never - 1

// Reserve takes n units of key now. A bucket also grants units that it has not refilled yet: they may be used after
// Delay, and later callers wait behind them. At most one burst can be booked ahead.
//
// A queue serves its places in order anyway, so Reserve gets no additional places there. Windows and logs cannot be
// booked ahead: there, Reserve is AllowN with a Cancel.
//
// A cost above the burst is ErrExceedsBurst. Cancel costs one message. In a window the units return to the window in
// which they were taken; in a log their entry is removed.
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

// Wait takes n units of key and returns when they may be used. With a queue it shapes traffic.
//
// Units of a bucket, and free places in a queue, are booked. Then waiting costs one message, and callers are served in
// the order of their bookings. Otherwise Wait asks again when RetryAfter has passed.
//
// Wait fails at once if ctx's deadline cannot be met (context.DeadlineExceeded), or if n is above the burst
// (ErrExceedsBurst). If ctx ends during the wait, the units are given back.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	t, err := l.of(key, n)
	if err == nil {
		err = t.holds(key, n) // not only when it is its turn
	}
	if err != nil {
		return hybridlimit.Result{}, err
	}
	each := t.each()
	who := waiting.Caller{Package: "global", Key: key, N: n, Done: l.done, Longest: longest * time.Microsecond, Lines: &l.lines, Each: &each}
	return who.Wait(ctx, func(most time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
		t, err := l.of(key, n)
		if err != nil {
			return hybridlimit.Result{}, nil, err
		}
		each = t.each()
		res, back, err := l.book(ctx, key, t, n, max(1, int64(most/time.Microsecond)))
		if err != nil || !res.Allowed {
			return res, nil, err
		}
		return res, func(ctx context.Context) error { return l.giveBack(ctx, key, t, back) }, nil
	})
}

// holds returns an error if the burst never has n units.
func (t *terms) holds(key string, n int64) error {
	if !t.static() && n > t.limit.BurstSize() {
		return fmt.Errorf("global: cost %d of key %q: %w (%d)", n, key, hybridlimit.ErrExceedsBurst, t.limit.BurstSize())
	}
	return nil
}

// book takes n units that can be used within most µs.
func (l *Limiter) book(ctx context.Context, key string, t *terms, n, most int64) (res hybridlimit.Result, back algo.Op, err error) {
	if err := t.holds(key, n); err != nil {
		return res, back, err
	}
	return l.take(ctx, key, t, n, algo.Op{Asks: []int64{n}, MaxDelay: most})
}

// Refund gives back n units of key, for a call that cost less than it took. The key never holds more units than when it
// is full. A log gives back the units of its oldest entries. A window gives back units of the current window.
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

// Reset forgets the usage of key. Hybrid limiters of the same name in other processes may still deny from memory for
// some seconds.
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
