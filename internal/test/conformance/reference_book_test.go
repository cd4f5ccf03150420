package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// booked is a number of granted units and the time at which they may be used.
type booked struct {
	at   time.Time
	used int64 // units·Period
	of   hybridlimit.Limit
}

// note records granted units. It returns nil if there are none.
func (r *reference) note(key string, s state, cost int64) *booked {
	if cost <= 0 {
		return nil
	}
	burst := s.of.BurstSize() * int64(s.of.Period)
	b := &booked{at: s.at.Add(ceil(max(0, s.used-burst), s.of.Rate)), used: cost, of: s.of}
	r.book[key] = append(r.book[key], b)
	return b
}

func ceil(x, rate int64) time.Duration { return time.Duration((x + rate - 1) / rate) }

// bookAhead takes n units of a bucket, down to one burst of debt.
func (r *reference) bookAhead(key string, n int64) (hybridlimit.Result, *booked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.now(key)
	cost, burst := n*int64(s.of.Period), s.of.BurstSize()*int64(s.of.Period)
	res := hybridlimit.Result{Limit: s.of.BurstSize(), Source: hybridlimit.SourceLocal}
	if s.used+cost > 2*burst {
		res.RetryAfter = ceil(s.used+cost-2*burst, s.of.Rate)
		return res, nil
	}
	s.used += cost
	r.keys[key] = s
	b := r.note(key, s, cost)
	res.Allowed, res.Granted, res.Delay = true, n, b.at.Sub(s.at)
	res.Remaining, res.ResetAfter = max(0, burst-s.used)/int64(s.of.Period), ceil(s.used, s.of.Rate)
	return res, b
}

// now returns the state of a key now, under the limit of the state.
func (r *reference) now(key string) state {
	s, ok := r.keys[key]
	if !ok {
		return state{at: time.Now(), of: r.limit}
	}
	return s.refilled(time.Now())
}

func (s state) refilled(now time.Time) state {
	back := s.of.Rate * int64(min(now.Sub(s.at), time.Hour))
	s.used, s.at = s.used-min(back, max(s.used, 0)), now
	return s
}

// cancel gives back the units of a booking, as far as the remaining bookings allow. From
// the time of each remaining booking on, the bucket must hold the units that are used
// then and later.
func (r *reference) cancel(key string, b *booked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.now(key)
	i := slices.Index(r.book[key], b)
	if i < 0 || s.of != b.of {
		return
	}
	r.book[key] = slices.Delete(r.book[key], i, i+1)
	need := int64(0)
	for _, from := range r.book[key] {
		sum := int64(0)
		for _, to := range r.book[key] {
			if !to.at.Before(from.at) {
				sum += to.used
			}
		}
		need = max(need, s.of.Rate*int64(from.at.Sub(s.at))+sum)
	}
	switch is := func(fault string) bool { return r.faulty == fault }; {
	case is("cancels at the cost of others"), is("gives up at the cost of others"),
		is("cancels at the cost of several") && len(r.book[key]) > 2,
		is("cancels what has run over") && !b.at.After(s.at):
		need = 0
	case is("cancels half"):
		need = s.used - b.used/2
	}
	s.used = min(s.used, max(s.used-b.used, need, 0))
	r.keys[key] = s
}

func (r *reference) Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error) {
	if n > r.limit.BurstSize() {
		return nil, hybridlimit.ErrExceedsBurst
	}
	res, b := r.bookAhead(key, n)
	switch r.faulty {
	case "reserves nothing":
		r.giveBack(key, n)
		return hybridlimit.NewReservation(res, nil), nil
	case "keeps what is cancelled":
		return hybridlimit.NewReservation(res, nil), nil
	}
	return hybridlimit.NewReservation(res, func(context.Context) error {
		r.cancel(key, b)
		return nil
	}), nil
}

func (r *reference) Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if n > r.limit.BurstSize() {
		return hybridlimit.Result{}, hybridlimit.ErrExceedsBurst
	}
	if r.isClosed() {
		return hybridlimit.Result{}, hybridlimit.ErrClosed
	}
	for {
		res, b := r.bookAhead(key, n)
		if r.faulty == "does not wait" {
			return res, nil
		}
		delay := max(res.Delay, res.RetryAfter)
		if end, ok := ctx.Deadline(); ok && time.Until(end) < delay && r.faulty != "waits for what cannot be" {
			r.cancel(key, b)
			return hybridlimit.Result{}, context.DeadlineExceeded
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			r.cancel(key, b)
			return hybridlimit.Result{}, ctx.Err()
		}
		if res.Delay = 0; res.Allowed {
			return res, nil
		}
	}
}
