package hybrid

import (
	"context"
	"sync"

	"github.com/hybridlimit/hybridlimit"
)

// This file has the bookings whose callers have left. A booking that is on its way to Redis when the context of its caller ends
// may be granted. Its goroutine waits for the answer, and gives the units back. Otherwise Redis would keep units that nobody uses,
// or the process would count units as used that Redis never granted.

// bookings are the bookings of a limiter that are on their way.
type bookings struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newBookings() bookings {
	ctx, cancel := context.WithCancel(context.Background())
	return bookings{ctx: ctx, cancel: cancel}
}

// begin returns false if the limiter is closed.
func (b *bookings) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Add(1)
	}
	return !b.closed
}

// close ends all bookings, and waits for their goroutines.
func (b *bookings) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
}

// apart runs f, which books in Redis and runs no callback of the user but for the logger's. If ctx ends first, apart returns its
// error at once, and undo gives back in the end what f has taken.
func (l *Limiter) apart(
	ctx context.Context, f func(context.Context) (hybridlimit.Result, booked, error), undo func(context.Context, booked),
) (hybridlimit.Result, booked, error) {
	if ctx.Done() == nil || ended(ctx) != nil || !l.bookings.begin() {
		return f(ctx)
	}
	type answer struct {
		res      hybridlimit.Result
		back     booked
		err      error
		panicked any
	}
	out, left := make(chan answer), make(chan struct{})
	go func() {
		defer l.bookings.wg.Done()
		detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(l.bookings.ctx, cancel)()
		var a answer
		func() {
			defer func() { a.panicked = recover() }()
			a.res, a.back, a.err = f(detached)
		}()
		select {
		case out <- a:
		case <-left:
			if a.panicked == nil && a.err == nil && a.res.Allowed && !a.res.Shadowed {
				undo(detached, a.back)
			}
		}
	}()
	select {
	case a := <-out:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.res, a.back, a.err
	case <-ctx.Done():
		close(left)
		return hybridlimit.Result{}, booked{}, ctx.Err()
	}
}
