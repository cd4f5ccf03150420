package limitertest

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// The other verbs of the reference, as dumb as the first.

func (r *reference) AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if r.faulty == "grants at most nothing" {
		return r.AllowN(ctx, key, n)
	}
	look, err := r.Peek(ctx, key)
	if err != nil {
		return look, err
	}
	res, err := r.AllowN(ctx, key, max(1, min(n, look.Remaining)))
	if r.faulty == "grants more than at most" && res.Allowed {
		res.Granted++
	}
	return res, err
}

func (r *reference) Peek(ctx context.Context, key string) (hybridlimit.Result, error) {
	r.mu.Lock()
	before, held := r.keys[key]
	r.mu.Unlock()
	res, err := r.AllowN(ctx, key, 1)
	if res.Allowed {
		res.Remaining++
		res.Granted = 0
	}
	if r.faulty == "peeks and takes" {
		return res, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys[key] = before; !held {
		delete(r.keys, key)
	}
	if r.faulty == "peeks blindly" {
		res.Allowed, res.RetryAfter = true, 0
	}
	return res, err
}

// add changes what is used, in units, after what came back.
func (r *reference) add(ctx context.Context, key string, n int64) error {
	if err := hybridlimit.CheckRequest(key, max(n, -n), 0); err != nil {
		return err
	}
	res, err := r.Allow(ctx, key) // brings it up to date
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	per := int64(r.limit.Period)
	s := r.keys[key]
	s.used -= res.Granted * per
	least := int64(0)
	if r.faulty == "refunds above full" {
		least = -100 * per
	}
	s.used = max(least, s.used+max(n, -2*r.limit.BurstSize())*per)
	if r.faulty == "charges what is there" {
		s.used = min(s.used, r.limit.BurstSize()*per)
	}
	r.keys[key] = s
	return nil
}

func (r *reference) Charge(ctx context.Context, key string, n int64) error { return r.add(ctx, key, n) }

func (r *reference) Refund(ctx context.Context, key string, n int64) error {
	if r.faulty == "refunds nothing" {
		return hybridlimit.CheckRequest(key, n, 0)
	}
	return r.add(ctx, key, -n)
}

func (r *reference) Reset(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.faulty {
	case "resets nobody":
	case "resets everybody":
		clear(r.keys)
	default:
		delete(r.keys, key)
	}
	return nil
}

func (r *reference) AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error) {
	if err := limit.Validate(); err != nil {
		if r.faulty == "takes any limit" {
			err = nil
		}
		return hybridlimit.Result{}, err
	}
	if r.faulty == "ignores limits of calls" {
		return r.AllowN(ctx, key, n)
	}
	was := r.limit
	r.limit = limit
	res, err := r.AllowN(ctx, key, n)
	if r.limit = was; r.faulty == "forgets limits of calls" && !res.Allowed {
		delete(r.keys, key)
	}
	return res, err
}

func (r *reference) SetLimit(limit hybridlimit.Limit) error {
	if err := limit.Validate(); err != nil {
		return err
	}
	if r.faulty == "keeps the old limit" {
		return nil
	}
	if r.limit = limit; r.faulty == "refills on a new limit" {
		clear(r.keys)
	}
	return nil
}

func (r *reference) Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error) {
	if n > r.limit.BurstSize() {
		return nil, hybridlimit.ErrExceedsBurst
	}
	res, err := r.AllowN(ctx, key, n)
	switch r.faulty {
	case "reserves nothing":
		return hybridlimit.NewReservation(res, nil), errors.Join(err, r.add(ctx, key, -n))
	case "keeps what is cancelled":
		return hybridlimit.NewReservation(res, nil), err
	}
	return hybridlimit.NewReservation(res, func(ctx context.Context) error { return r.add(ctx, key, -n) }), err
}

func (r *reference) Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if n > r.limit.BurstSize() {
		return hybridlimit.Result{}, hybridlimit.ErrExceedsBurst
	}
	for {
		res, err := r.AllowN(ctx, key, n)
		if err != nil || res.Allowed || r.faulty == "does not wait" {
			return res, err
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < res.RetryAfter && r.faulty != "waits for what cannot be" {
			return hybridlimit.Result{}, context.DeadlineExceeded
		}
		select {
		case <-time.After(max(res.RetryAfter, time.Millisecond)): // a faulty one may say 0
		case <-ctx.Done():
			return hybridlimit.Result{}, ctx.Err()
		}
	}
}
