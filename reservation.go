package hybridlimit

import (
	"context"
	"sync"
)

// Reservation is units taken for later: use them once Delay has passed since it
// was made, or give them back with Cancel. It is not safe for concurrent use,
// but for Cancel.
type Reservation struct {
	// Result tells whether the units were taken. Delay is 0 where they may be
	// used at once.
	Result
	once   sync.Once
	err    error
	cancel func(context.Context) error
}

// NewReservation is for limiters. cancel gives the units back; nil where there
// is nothing to give back.
func NewReservation(res Result, cancel func(context.Context) error) *Reservation {
	return &Reservation{Result: res, cancel: cancel}
}

// Cancel gives the units back, unless nothing was taken. Others may have been
// put off meanwhile, and are not called back. Those who booked after it keep
// their times: of a bucket no more comes back than the limit lets through beside
// them, and what has been refilled since it was full is not given back twice. Of
// a window the units go back to that in which they were taken. The first call counts, later ones
// return what it returned. The error is Redis's, in which case the units stay
// taken, and come back as the limit refills.
func (r *Reservation) Cancel(ctx context.Context) error {
	r.once.Do(func() {
		if r.cancel != nil && r.Allowed && !r.Shadowed {
			r.err = r.cancel(ctx)
		}
	})
	return r.err
}
