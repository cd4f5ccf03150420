package hybridlimit

import "context"

// Limiter decides whether a key may consume. Implementations are safe for
// concurrent use.
//
// A denial is a Result, not an error. An error means that the question was
// bad (ErrEmptyKey, ErrKeyTooLong, ErrCost), that the limiter is closed
// (ErrClosed), that the caller's ctx ended while waiting (nothing is charged),
// or, in global, that Redis did not answer (ErrUnavailable; the Result then
// holds what the fallback says).
type Limiter interface {
	// Allow is AllowN with a cost of 1.
	Allow(ctx context.Context, key string) (Result, error)
	// AllowN consumes n units of key, all or none. An n above the burst is a
	// denial with RetryAfter Never.
	AllowN(ctx context.Context, key string, n int64) (Result, error)
}
