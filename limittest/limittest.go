package limittest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// Policy is the Result.Policy of this package's limiters.
const Policy = "limittest"

// AllowAll returns a limiter that admits everything. Its results have SourceStatic and the largest Remaining.
func AllowAll() hybridlimit.Limiter {
	return answer(func(n int64) hybridlimit.Result {
		return hybridlimit.Result{
			Allowed: true, Granted: n, Limit: math.MaxInt64, Remaining: math.MaxInt64,
			Source: hybridlimit.SourceStatic, Policy: Policy,
		}
	})
}

// DenyAll returns a limiter that denies everything. RetryAfter and ResetAfter of its
// results are retryAfter; hybridlimit.Never means that no later call succeeds.
// DenyAll panics unless retryAfter is above 0, as it is in every denial.
func DenyAll(retryAfter time.Duration) hybridlimit.Limiter {
	if retryAfter <= 0 {
		panic(fmt.Sprintf("limittest: DenyAll(%v): retryAfter must be above 0", retryAfter))
	}
	return answer(func(int64) hybridlimit.Result {
		return hybridlimit.Result{
			Limit: 1, RetryAfter: retryAfter, ResetAfter: retryAfter,
			Source: hybridlimit.SourceStatic, Policy: Policy,
		}
	})
}

// answer is a limiter with one result for each cost n.
type answer func(n int64) hybridlimit.Result

func (a answer) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return a.AllowN(ctx, key, 1)
}

func (a answer) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := adapter.CheckRequest(key, n, 0); err != nil {
		return hybridlimit.Result{}, fmt.Errorf("limittest: %w", err)
	}
	return a(n), nil
}

// ErrScriptOver is the error of a Script after its last answer.
var ErrScriptOver = errors.New("limittest: the script has no more answers")

// Step is one answer of a Script.
type Step struct {
	Result hybridlimit.Result // returned unchanged
	Err    error              // returned together with Result
}

// Script is a limiter that returns prepared answers, one per call and unchanged. The key does not matter. After the
// last answer, each call fails with ErrScriptOver. A Script is safe for concurrent use.
type Script struct {
	mu    sync.Mutex
	steps []Step
}

// Play returns a Script of results.
func Play(results ...hybridlimit.Result) *Script {
	s := &Script{}
	for _, r := range results {
		s.steps = append(s.steps, Step{Result: r})
	}
	return s
}

// PlaySteps returns a Script of results and errors.
func PlaySteps(steps ...Step) *Script {
	return &Script{steps: append([]Step(nil), steps...)}
}

// Allow is AllowN with a cost of 1.
func (s *Script) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return s.AllowN(ctx, key, 1)
}

// AllowN returns the next answer. For an invalid key or cost it returns an error and uses up no answer.
func (s *Script) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := adapter.CheckRequest(key, n, 0); err != nil {
		return hybridlimit.Result{}, fmt.Errorf("limittest: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) == 0 {
		return hybridlimit.Result{}, ErrScriptOver
	}
	next := s.steps[0]
	s.steps = s.steps[1:]
	return next.Result, next.Err
}

// Left returns the number of answers that have not been used.
func (s *Script) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.steps)
}
