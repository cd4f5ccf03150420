package limittest

import (
	"context"
	"slices"
	"sync"

	"github.com/hybridlimit/hybridlimit"
)

// Call is a call that a Recorder has recorded.
type Call struct {
	Key    string             // the caller's key
	N      int64              // the cost in units; 1 for Allow
	Result hybridlimit.Result // the limiter's result
	Err    error              // the limiter's error
}

// Recorder is a limiter that calls another one and records each call, in the order of the results. Its memory grows
// until Reset, so it is for tests only. A Recorder is safe for concurrent use.
type Recorder struct {
	limiter hybridlimit.Limiter
	mu      sync.Mutex
	calls   []Call
}

// Record returns a Recorder that calls limiter. It has only the limiter's methods Allow and AllowN. Nil: AllowAll().
func Record(limiter hybridlimit.Limiter) *Recorder {
	if limiter == nil {
		limiter = AllowAll()
	}
	return &Recorder{limiter: limiter}
}

// Allow calls the limiter and records the call.
func (r *Recorder) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	res, err := r.limiter.Allow(ctx, key)
	r.note(Call{key, 1, res, err})
	return res, err
}

// AllowN calls the limiter and records the call.
func (r *Recorder) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	res, err := r.limiter.AllowN(ctx, key, n)
	r.note(Call{key, n, res, err})
	return res, err
}

func (r *Recorder) note(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

// Calls returns a copy of the calls so far.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Keys returns the keys of the calls so far, in the same order.
func (r *Recorder) Keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]string, len(r.calls))
	for i, c := range r.calls {
		keys[i] = c.Key
	}
	return keys
}

// Reset removes all recorded calls.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}
