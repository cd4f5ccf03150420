package limittest

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
)

// PermitScript is a limiter of calls in flight that returns prepared answers, one per call and unchanged. The key does
// not matter, and no permit is ever scarce. After the last answer, each call fails with ErrScriptOver.
// RecordPermits(script) also records the calls and counts the permits. A PermitScript is safe for concurrent use.
type PermitScript struct{ script *Script }

var _ hybridlimit.Acquirer = (*PermitScript)(nil)

// PlayPermits returns a PermitScript of results.
func PlayPermits(results ...hybridlimit.Result) *PermitScript { return &PermitScript{Play(results...)} }

// PlayPermitSteps returns a PermitScript of results and errors.
func PlayPermitSteps(steps ...Step) *PermitScript { return &PermitScript{PlaySteps(steps...)} }

// Allow returns hybridlimit.ErrUnsupported, and uses up no answer.
func (*PermitScript) Allow(context.Context, string) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, errHold
}

// AllowN is as Allow.
func (*PermitScript) AllowN(context.Context, string, int64) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, errHold
}

// Acquire is AcquireN with one permit.
func (s *PermitScript) Acquire(ctx context.Context, key string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return s.AcquireN(ctx, key, 1)
}

// AcquireN returns the next answer, and a permit if it is an admission. For an invalid key or number, and for a ctx
// that has ended, it returns an error and uses up no answer.
func (s *PermitScript) AcquireN(ctx context.Context, key string, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	if err := checkCall(ctx, key, n); err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	res, err := s.script.AllowN(ctx, key, n)
	if err != nil || !res.Allowed {
		return hybridlimit.Permit{}, res, err
	}
	return hybridlimit.NewPermit(unscarce{}, n), res, nil
}

// Left returns the number of answers that have not been used.
func (s *PermitScript) Left() int { return s.script.Left() }

// unscarce takes permits back that no other call waits for.
type unscarce struct{}

// ReleasePermits implements hybridlimit.PermitHolder.
func (unscarce) ReleasePermits(int64) {}
