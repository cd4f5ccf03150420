package hybridlimit

import (
	"context"
	"sync"
)

// Reservation holds units that were taken for later use. Use them when Delay has passed since the reservation, or give
// them back with Cancel. Only Cancel is safe for concurrent use.
type Reservation struct {
	// Result reports whether the units were taken. Delay is 0 if they may be used at once.
	Result
	once   sync.Once
	err    error
	cancel func(context.Context) error
}

// NewReservation returns a Reservation. It is for implementations of limiters.
// cancel gives the units back. Nil: there are none to give back.
func NewReservation(res Result, cancel func(context.Context) error) *Reservation {
	return &Reservation{Result: res, cancel: cancel}
}

// Cancel gives the units back, if any were taken. Callers that were denied in the meantime are not notified. Later
// reservations keep their times. So in a bucket, only the units come back that the limit permits beside later
// reservations. Units that a full bucket has refilled do not come back twice. In a window, the units return to the
// window in which they were taken.
//
// Only the first call has an effect; later calls return its error. An error comes
// from Redis. The units then stay taken, and come back as the limit refills.
func (r *Reservation) Cancel(ctx context.Context) error {
	r.once.Do(func() {
		if r.cancel != nil && r.Allowed && !r.Shadowed {
			r.err = r.cancel(ctx)
		}
	})
	return r.err
}
