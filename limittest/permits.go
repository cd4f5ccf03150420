package limittest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// PermitRecorder is a limiter of calls in flight that calls another one. It records each call, and counts the permits
// that are held, so that a test finds a permit that is never released. Its memory grows until Reset, so it is for tests
// only. A PermitRecorder is safe for concurrent use.
type PermitRecorder struct {
	limiter hybridlimit.Acquirer
	mu      sync.Mutex
	calls   []Call
	held    []*recorded // permits that were not released yet, in the order of their calls
}

var _ hybridlimit.Acquirer = (*PermitRecorder)(nil)

// RecordPermits returns a PermitRecorder that calls limiter, such as one of local.NewConcurrency. It has only the
// methods of a hybridlimit.Acquirer. Nil: a limiter that admits everything.
func RecordPermits(limiter hybridlimit.Acquirer) *PermitRecorder {
	if limiter == nil {
		limiter = acquireAll{}
	}
	return &PermitRecorder{limiter: limiter}
}

// Allow calls the limiter, which returns hybridlimit.ErrUnsupported, and records nothing.
func (r *PermitRecorder) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return r.limiter.Allow(ctx, key)
}

// AllowN is as Allow.
func (r *PermitRecorder) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return r.limiter.AllowN(ctx, key, n)
}

// Acquire is AcquireN with one permit.
func (r *PermitRecorder) Acquire(ctx context.Context, key string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return r.AcquireN(ctx, key, 1)
}

// AcquireN calls the limiter, records the call, and counts its permits until they are released.
func (r *PermitRecorder) AcquireN(ctx context.Context, key string, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	permit, res, err := r.limiter.AcquireN(ctx, key, n)
	holds := err == nil && res.Allowed
	call := Call{key, n, res, err}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	if !holds {
		return permit, res, err
	}
	p := &recorded{r, permit, call}
	r.held = append(r.held, p)
	return hybridlimit.NewPermit(p, n), res, nil
}

// Held returns the number of permits that were not released yet. It is 0 at the end
// of a test of code that releases its permits.
func (r *PermitRecorder) Held() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int64
	for _, p := range r.held {
		n += p.call.N
	}
	return n
}

// Leaked returns the calls whose permits were not released yet, in their order. A test
// of code that forgets a Release finds its keys here.
func (r *PermitRecorder) Leaked() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]Call, len(r.held))
	for i, p := range r.held {
		calls[i] = p.call
	}
	return calls
}

// Calls returns a copy of the calls so far.
func (r *PermitRecorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Reset removes all recorded calls. Permits that are held stay counted.
func (r *PermitRecorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

// recorded is a permit that is counted.
type recorded struct {
	by     *PermitRecorder
	permit hybridlimit.Permit // of the limiter
	call   Call
}

// ReleasePermits implements hybridlimit.PermitHolder.
func (p *recorded) ReleasePermits(int64) {
	p.by.mu.Lock()
	if i := slices.Index(p.by.held, p); i >= 0 {
		p.by.held = slices.Delete(p.by.held, i, i+1)
	}
	p.by.mu.Unlock()
	p.permit.Release()
}

// acquireAll admits everything.
type acquireAll struct{}

func (acquireAll) Allow(context.Context, string) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, errHold
}

func (a acquireAll) AllowN(ctx context.Context, key string, _ int64) (hybridlimit.Result, error) {
	return a.Allow(ctx, key)
}

func (a acquireAll) Acquire(ctx context.Context, key string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return a.AcquireN(ctx, key, 1)
}

func (acquireAll) AcquireN(ctx context.Context, key string, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	if err := checkCall(ctx, key, n); err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	return hybridlimit.Permit{}, hybridlimit.Result{
		Allowed: true, Granted: n, Limit: math.MaxInt64, Remaining: math.MaxInt64, Source: hybridlimit.SourceStatic, Policy: Policy,
	}, nil
}

var errHold = fmt.Errorf("limittest: %w: a permit is held while the call runs: use Acquire", hybridlimit.ErrUnsupported)

// checkCall returns the error of a call that no limiter decides.
func checkCall(ctx context.Context, key string, n int64) error {
	err := ctx.Err()
	if err == nil {
		err = adapter.CheckRequest(key, n, 0)
	}
	if err != nil {
		return fmt.Errorf("limittest: %w", err)
	}
	return nil
}
