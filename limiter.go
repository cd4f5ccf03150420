package hybridlimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Limiter decides whether a key may consume units. Implementations are safe for concurrent use.
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
	// AllowN consumes n units of key, all or none. It denies an n above the burst with RetryAfter Never.
	AllowN(ctx context.Context, key string, n int64) (Result, error)
}

// Policy is the limit that a limiter enforces on a key.
type Policy struct {
	// Name is the limiter's name, as in Result.Policy. Empty: none.
	Name string
	// Limit is the key's limit: the limiter's own, or that of its LimitFor.
	Limit Limit
	// Shadow is true if the limiter decides and counts but denies nothing now,
	// because of its configuration or a switch.
	Shadow bool
}

// The errors common to all limiters. Compare with errors.Is.
var (
	// ErrClosed is returned after the limiter was closed or shut down.
	ErrClosed = errors.New("hybridlimit: limiter is closed")
	// ErrUnavailable is returned when Redis gave no answer. The error also wraps the cause.
	ErrUnavailable = errors.New("hybridlimit: Redis is unavailable")
	// ErrExceedsBurst is returned by Wait and Reserve for a cost above the
	// burst. Allow denies such a cost with RetryAfter Never.
	ErrExceedsBurst = errors.New("hybridlimit: cost exceeds the burst")
	// ErrNilClient is returned by constructors that need a Redis client.
	ErrNilClient = errors.New("hybridlimit: Redis client is nil")
	// ErrEmptyKey is returned for an empty key.
	ErrEmptyKey = errors.New("hybridlimit: key is empty")
	// ErrKeyTooLong is returned for a key above the configured length.
	ErrKeyTooLong = errors.New("hybridlimit: key is too long")
	// ErrCost is returned for a cost below 1.
	ErrCost = errors.New("hybridlimit: cost must be at least 1")
	// ErrInvalid matches every *InvalidError.
	ErrInvalid = errors.New("hybridlimit: invalid configuration")
	// ErrTooManyKeys is returned by Acquire if MaxKeys keys have running calls.
	ErrTooManyKeys = errors.New("hybridlimit: too many keys have running calls")
	// ErrUnsupported is returned by History for an algorithm that keeps no log, by a constructor for an algorithm that
	// its package does not know or that another constructor is for, and by Allow of an Acquirer.
	ErrUnsupported = errors.New("hybridlimit: algorithm is not supported")
)

// Violation is one invalid field of a configuration.
type Violation struct {
	Field   string // "Config.MaxKeys"
	Value   any    // the invalid value
	Problem string // "must not be negative"
}

// String returns the violation as one clause: `Config.MaxKeys (-1) must not be negative`.
func (v Violation) String() string {
	if s, ok := v.Value.(string); ok {
		return fmt.Sprintf("%s (%q) %s", v.Field, s, v.Problem)
	}
	return fmt.Sprintf("%s (%v) %s", v.Field, v.Value, v.Problem)
}

// violations collects the invalid fields of a configuration.
type violations []Violation

func (v *violations) add(field string, value any, problem string) {
	*v = append(*v, Violation{field, value, problem})
}

// err returns nil for no violations.
func (v violations) err(pkg string) error {
	if len(v) == 0 {
		return nil
	}
	return &InvalidError{Package: pkg, Violations: v}
}

// InvalidError lists all violations of a configuration at once. It matches ErrInvalid.
type InvalidError struct {
	Package    string      // the package that refused: "hybrid"
	Violations []Violation // at least one
}

// Error returns the package and each field with its value.
func (e *InvalidError) Error() string {
	clauses := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		clauses[i] = v.String()
	}
	return e.Package + ": " + strings.Join(clauses, "; ")
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
