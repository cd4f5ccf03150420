package main

import (
	"context"

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

// ask takes the predicted cost, calls, and settles the difference.
func ask(ctx context.Context, limiter meter, user string, p prompt, model completer) (used int64, res hybridlimit.Result, err error) {
	// All or nothing, before anything is spent. A prediction above the burst
	// would be denied for ever: cap it where that can be.
	res, err = limiter.AllowN(ctx, user, p.predicted)
	if err != nil || !res.Allowed {
		return 0, res, err
	}
	used, callErr := model.Complete(ctx, p)
	// What was used was used, also by a call that failed or whose ctx ended.
	settle := context.WithoutCancel(ctx)
	settled := res
	switch {
	case used > p.predicted:
		// Unconditional, into debt if need be: the next calls wait for it.
		settled, err = limiter.Charge(settle, user, used-p.predicted)
	case used < p.predicted:
		settled, err = limiter.Refund(settle, user, p.predicted-used)
	}
	if callErr != nil {
		return used, res, callErr
	}
	if err == nil {
		res.Remaining = settled.Remaining
	}
	return used, res, err
}
