package limittest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Policy is the Result.Policy of this package's limiters.
const Policy = "limittest"

// AllowAll admits everything. Its results have SourceStatic, and nothing is
// ever used up.
func AllowAll() hybridlimit.Limiter {
	return answer(func(n int64) hybridlimit.Result {
		return hybridlimit.Result{
			Allowed: true, Granted: n, Limit: math.MaxInt64, Remaining: math.MaxInt64,
			Source: hybridlimit.SourceStatic, Policy: Policy,
		}
	})
}

// DenyAll denies everything, with that RetryAfter and ResetAfter:
// hybridlimit.Never for what never succeeds. It panics where retryAfter is not
// above 0, as that of a denial always is.
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

// answer is a limiter that has one answer.
type answer func(n int64) hybridlimit.Result

func (a answer) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return a.AllowN(ctx, key, 1)
}

func (a answer) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := hybridlimit.CheckRequest(key, n, 0); err != nil {
		return hybridlimit.Result{}, fmt.Errorf("limittest: %w", err)
	}
	return a(n), nil
}

// ErrScriptOver is what a Script says that was asked more often than it has
// answers.
var ErrScriptOver = errors.New("limittest: the script is over")

// Step is one answer of a Script.
type Step struct {
	Result hybridlimit.Result // as it is given
	Err    error              // beside it
}

// Script is a limiter that gives the results it was made with, one after the
// other, whatever the key, just as they are. Past its end every call fails with
// ErrScriptOver. It is safe for concurrent use.
type Script struct {
	mu    sync.Mutex
	steps []Step
}

// Play makes a Script of results.
func Play(results ...hybridlimit.Result) *Script {
	s := &Script{}
	for _, r := range results {
		s.steps = append(s.steps, Step{Result: r})
	}
	return s
}

// PlaySteps makes a Script of results and errors.
func PlaySteps(steps ...Step) *Script {
	return &Script{steps: append([]Step(nil), steps...)}
}

// Allow is AllowN with a cost of 1.
func (s *Script) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return s.AllowN(ctx, key, 1)
}

// AllowN gives the next answer. A bad key or cost is an error, and uses none up.
func (s *Script) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := hybridlimit.CheckRequest(key, n, 0); err != nil {
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

// Left is how many answers have not been given: 0 where a test has asked all.
func (s *Script) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.steps)
}
