package limittest

import (
	"context"
	"slices"
	"sync"

	"github.com/hybridlimit/hybridlimit"
)

// Call is one that a Recorder has noted.
type Call struct {
	Key    string             // as asked
	N      int64              // units; 1 of Allow
	Result hybridlimit.Result // as answered
	Err    error              // beside it
}

// Recorder is a limiter that asks another and notes what was asked and
// answered, in the order of the answers. It keeps all of it until Reset: it is
// for tests. It is safe for concurrent use.
type Recorder struct {
	limiter hybridlimit.Limiter
	mu      sync.Mutex
	calls   []Call
}

// Record makes a Recorder of a limiter. Of its methods only Allow and AllowN are
// passed on. Nil: AllowAll().
func Record(limiter hybridlimit.Limiter) *Recorder {
	if limiter == nil {
		limiter = AllowAll()
	}
	return &Recorder{limiter: limiter}
}

// Allow asks the limiter.
func (r *Recorder) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	res, err := r.limiter.Allow(ctx, key)
	r.note(Call{key, 1, res, err})
	return res, err
}

// AllowN asks the limiter.
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

// Calls is what was asked so far; the slice is the caller's.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Keys are those of the calls, in their order.
func (r *Recorder) Keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]string, len(r.calls))
	for i, c := range r.calls {
		keys[i] = c.Key
	}
	return keys
}

// Reset forgets the calls.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}
