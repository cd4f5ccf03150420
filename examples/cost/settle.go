package main

import (
	"context"
	"errors"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/spend"
)

// prompt may use up to ceiling tokens: those of its text, and of the longest answer that it permits.
type prompt struct{ ceiling int64 }

type completer interface {
	Complete(ctx context.Context, p prompt) (used int64, err error)
}

// ask takes an estimate of the tokens, calls the model, and settles what the call used. The estimate is the quantile of
// earlier calls, so that few calls use more. An error of settling is joined to that of the call.
func ask(ctx context.Context, limiter hybridlimit.Limiter, costs *spend.Estimator, user string, p prompt, model completer) (used int64, res hybridlimit.Result, err error) {
	s, res, err := spend.Begin(ctx, hybridlimit.Ask{Limiter: limiter, Key: user, N: costs.Estimate("model", p.ceiling)})
	if err != nil || !res.Allowed {
		return 0, res, err
	}
	defer func() { err = errors.Join(err, s.Settle(ctx)) }() // also after a panic: then the estimate stands
	used, err = model.Complete(ctx, p)
	costs.Observe("model", used)
	_, useErr := s.Use(ctx, 0, used) // a call that failed, or whose client has left, has used them too
	return used, res, errors.Join(err, useErr)
}
