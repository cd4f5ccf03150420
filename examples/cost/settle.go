package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
)

// meter is the part of a limiter that ask needs. The limiters of local, global and hybrid have it.
type meter interface {
	hybridlimit.Limiter
	Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

type prompt struct{ predicted int64 }

type completer interface {
	Complete(ctx context.Context, p prompt) (used int64, err error)
}

// ask charges the predicted cost, calls the model, and settles the difference. A difference that could not be settled
// is an error, joined to that of the call.
func ask(ctx context.Context, limiter meter, user string, p prompt, model completer) (used int64, res hybridlimit.Result, err error) {
	// All or nothing, before anything is spent. A prediction above the burst
	// would always be denied: cap it if that can happen.
	res, err = limiter.AllowN(ctx, user, p.predicted)
	if err != nil || !res.Allowed {
		return 0, res, err
	}
	// The used amount counts even if the call failed or ctx ended. After a
	// panic it is unknown, so the prediction stands.
	used = p.predicted
	defer func() {
		left, settleErr := settle(context.WithoutCancel(ctx), limiter, user, used-p.predicted, res.Remaining)
		res.Remaining, err = left, errors.Join(err, settleErr)
	}()
	used, err = model.Complete(ctx, p)
	return used, res, err
}

// settle charges the additional use, or refunds the unused part, and returns the remaining units.
func settle(ctx context.Context, limiter meter, user string, more, left int64) (int64, error) {
	var res hybridlimit.Result
	var err error
	switch {
	case more > 0:
		// Charge never denies. The level may become negative, and then later calls wait until it is paid.
		res, err = limiter.Charge(ctx, user, more)
	case more < 0:
		res, err = limiter.Refund(ctx, user, -more)
	default:
		return left, nil
	}
	if err != nil {
		return left, fmt.Errorf("settle %+d units: %w", more, err)
	}
	return res.Remaining, nil
}
