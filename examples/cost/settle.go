package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
)

// meter is what is asked of a limiter: those of local, global and hybrid do.
type meter interface {
	hybridlimit.Limiter
	Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

type prompt struct{ predicted int64 }

type completer interface {
	Complete(ctx context.Context, p prompt) (used int64, err error)
}

// ask takes the predicted cost, calls, and settles the difference. What could
// not be settled is an error beside that of the call.
func ask(ctx context.Context, limiter meter, user string, p prompt, model completer) (used int64, res hybridlimit.Result, err error) {
	// All or nothing, before anything is spent. A prediction above the burst
	// would be denied for ever: cap it where that can be.
	res, err = limiter.AllowN(ctx, user, p.predicted)
	if err != nil || !res.Allowed {
		return 0, res, err
	}
	// What was used was used, also by a call that failed or whose ctx ended. Of
	// one that panics nobody knows: then the prediction stands.
	used = p.predicted
	defer func() {
		left, settleErr := settle(context.WithoutCancel(ctx), limiter, user, used-p.predicted, res.Remaining)
		res.Remaining, err = left, errors.Join(err, settleErr)
	}()
	used, err = model.Complete(ctx, p)
	return used, res, err
}

// settle takes what was used more, or gives back what was used less, and says
// what is left.
func settle(ctx context.Context, limiter meter, user string, more, left int64) (int64, error) {
	var res hybridlimit.Result
	var err error
	switch {
	case more > 0:
		// Unconditional, into debt if need be: the next calls wait for it.
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
