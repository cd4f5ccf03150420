package otellimit

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// Wrappers for limiters of calls in flight.
type (
	acquiring struct {
		*counted
		acquirer hybridlimit.Acquirer
	}
	acquiringDescribed struct {
		acquiring
		describer adapter.Describer
	}
)

// Name returns the limiter's name.
func (a acquiringDescribed) Name() string { return a.describer.Name() }

// Policy returns the limiter's policy for a key.
func (a acquiringDescribed) Policy(key string) hybridlimit.Policy { return a.describer.Policy(key) }

// Acquire is AcquireN with one permit.
func (a acquiring) Acquire(ctx context.Context, key string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return a.AcquireN(ctx, key, 1)
}

// AcquireN calls the limiter, counts the decision, and counts the permits until they are released. The duration
// includes the wait for a permit.
func (a acquiring) AcquireN(ctx context.Context, key string, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	var began time.Time
	if a.duration != nil {
		began = time.Now()
	}
	permit, res, err := a.acquirer.AcquireN(ctx, key, n)
	if a.duration != nil {
		a.took(ctx, time.Since(began))
	}
	a.note(&res, err)
	if err != nil || !res.Allowed {
		return permit, res, err
	}
	a.running.Add(n)
	return hybridlimit.NewPermit(&held{a.counted, permit}, n), res, nil
}

// held is a permit that is counted.
type held struct {
	by     *counted
	permit hybridlimit.Permit // of the limiter
}

// ReleasePermits implements hybridlimit.PermitHolder.
func (h *held) ReleasePermits(n int64) {
	h.by.running.Add(-n)
	h.permit.Release()
}
