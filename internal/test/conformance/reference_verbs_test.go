package conformance

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// convert changes a state to another limit. The units left stay, capped at the new burst.
// A debt stays too.
func (r *reference) convert(s state, limit hybridlimit.Limit, given bool) state {
	if given && r.faulty == "refills under a plan" || !given && r.faulty == "refills at a new limit" {
		return state{at: s.at, of: limit}
	}
	was, per := int64(s.of.Period), int64(limit.Period)
	left := s.of.BurstSize() - (s.used+was-1)/was
	if r.faulty == "adds a unit with each plan" {
		left++
	}
	if r.faulty != "hoards under a plan" {
		left = min(left, limit.BurstSize())
	}
	if r.faulty == "keeps what is used" { // keeps the used units instead of the units left
		left = min(limit.BurstSize(), limit.BurstSize()-s.used/was)
	}
	return state{used: (limit.BurstSize() - max(left, -limit.BurstSize())) * per, at: s.at, of: limit}
}

func (r *reference) AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return r.decide(ctx, key, n, some, nil)
}

func (r *reference) Peek(ctx context.Context, key string) (hybridlimit.Result, error) {
	res, err := r.decide(ctx, key, 1, look, nil)
	if r.faulty == "peeks for a unit" {
		res.Granted = 0
	}
	return res, err
}

func (r *reference) History(ctx context.Context, key string) ([]hybridlimit.Admission, error) {
	if _, err := r.Peek(ctx, key); err != nil {
		return nil, err
	}
	if r.faulty == "has a history" {
		return nil, nil
	}
	return nil, hybridlimit.ErrUnsupported
}

func (r *reference) Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if r.faulty == "charges when closed" {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed {
			return hybridlimit.Result{Allowed: true, Granted: n}, nil
		}
		r.mu.Unlock()
		defer r.mu.Lock()
	}
	if r.faulty == "charges anything" && n < 1 {
		return hybridlimit.Result{Allowed: true, Granted: n}, nil
	}
	return r.decide(ctx, key, n, owe, nil)
}

func (r *reference) AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error) {
	if err := limit.Validate(); err != nil && !r.isClosed() {
		return hybridlimit.Result{}, err
	}
	return r.decide(ctx, key, n, ask, &limit)
}

func (r *reference) SetLimit(limit hybridlimit.Limit) error {
	if r.isClosed() {
		return hybridlimit.ErrClosed
	}
	if err := limit.Validate(); err != nil && r.faulty != "sets any limit" {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.keys {
		if s.of == r.limit && r.faulty != "refills the past at a new rate" {
			r.keys[key] = r.convert(s.refilled(time.Now()), limit, false)
		}
	}
	r.limit = limit
	return nil
}

func (r *reference) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed && r.faulty != "ignores Close"
}

// giveBack subtracts n units from the used units.
func (r *reference) giveBack(key string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.keys[key]
	if !ok {
		s = state{at: time.Now(), of: r.limit}
	}
	least, per := int64(0), int64(r.limit.Period)
	if r.faulty == "refunds above full" {
		least = -100 * per
	}
	s.used = max(least, s.used-min(n, 2*r.limit.BurstSize())*per)
	r.keys[key] = s
}

func (r *reference) Refund(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	err := adapter.CheckRequest(key, n, 0)
	if err == nil && r.faulty != "refunds nothing" {
		r.giveBack(key, n)
	}
	return hybridlimit.Result{Allowed: err == nil}, err
}

func (r *reference) Reset(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.faulty {
	case "resets nobody":
	case "resets everybody":
		clear(r.keys)
		clear(r.book)
	default:
		delete(r.keys, key)
		delete(r.book, key)
	}
	return nil
}
