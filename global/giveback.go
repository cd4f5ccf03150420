package global

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// NotReturnedError lists units that a denied or failed hybridlimit.AllowAll had taken, and that may still be taken.
// Redis did not answer the message that gives them back, so Redis may or may not have applied it. If it did not, the
// units come back as the limits refill. A Refund of the units risks that they are given back twice.
type NotReturnedError struct {
	Asks []hybridlimit.Ask // the taken units; Result is not set
	Err  error             // the cause; wraps hybridlimit.ErrUnavailable
}

// Error returns the limiters, the keys and the units.
func (e *NotReturnedError) Error() string {
	var b strings.Builder
	for i, a := range e.Asks {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d units of %q", a.N, a.Key)
		if l, ok := a.Limiter.(hybridlimit.Describer); ok {
			fmt.Fprintf(&b, " (%s)", l.Name())
		}
	}
	return fmt.Sprintf("global: AllowAll: not given back: %s: %v", &b, e.Err)
}

// Unwrap returns the cause.
func (e *NotReturnedError) Unwrap() error { return e.Err }

// giveBack gives the units of all groups back, with one message for each group, concurrently.
func giveBack(ctx context.Context, timeout time.Duration, groups [][]*part) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	causes := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, group := range groups {
		wg.Go(func() {
			ops := make([]wire.Op, len(group))
			for i, p := range group {
				ops[i] = wire.Op{Key: p.name, Limit: p.terms.limit, Op: p.back}
			}
			causes[i] = group[0].Limiter.runner.BatchWithin(ctx, ops)
		})
	}
	wg.Wait()
	var left NotReturnedError
	for i, err := range causes {
		if err == nil {
			continue
		}
		left.Err = errors.Join(left.Err, err)
		for _, p := range groups[i] {
			left.Asks = append(left.Asks, hybridlimit.Ask{Limiter: p.Limiter, Key: p.Key, N: p.N})
		}
	}
	if left.Err == nil {
		return nil
	}
	left.Err = fmt.Errorf("%w: %w", hybridlimit.ErrUnavailable, left.Err)
	return &left
}
