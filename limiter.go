package hybridlimit

import "context"

// Limiter decides whether a key may consume units. Implementations are safe for
// concurrent use.
//
// A denial is a Result, not an error. The errors are:
//
//   - ErrEmptyKey, ErrKeyTooLong, ErrCost: the call was wrong.
//   - ErrClosed: the limiter is closed.
//   - the error of ctx: ctx ended while the call waited. Nothing is charged.
//   - ErrUnavailable, in global only: Redis did not answer. The Result then
//     holds the decision of the fallback.
type Limiter interface {
	// Allow is AllowN with a cost of 1.
	Allow(ctx context.Context, key string) (Result, error)
	// AllowN consumes n units of key, all or none. It denies an n above the
	// burst with RetryAfter Never.
	AllowN(ctx context.Context, key string, n int64) (Result, error)
}
