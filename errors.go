package hybridlimit

import (
	"errors"
	"fmt"
	"strings"
)

// The errors common to all limiters. Compare with errors.Is.
var (
	// ErrClosed is returned after the limiter was closed or shut down.
	ErrClosed = errors.New("hybridlimit: limiter is closed")
	// ErrUnavailable is returned when Redis gave no answer. The error also
	// wraps the cause.
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
	// ErrUnsupported is returned by History for an algorithm that keeps no log, by
	// a constructor for an algorithm that its package does not know or that
	// another constructor is for, and by Allow of an Acquirer.
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

// Violations collects the invalid fields of a configuration.
type Violations []Violation

// Add appends one violation.
func (v *Violations) Add(field string, value any, problem string) {
	*v = append(*v, Violation{field, value, problem})
}

// AddLimit appends the violations that l.Validate would report.
func (v *Violations) AddLimit(l Limit) { l.violations(v) }

// Err returns nil for no violations, else an *InvalidError of package pkg.
func (v Violations) Err(pkg string) error {
	if len(v) == 0 {
		return nil
	}
	return &InvalidError{Package: pkg, Violations: v}
}

// InvalidError lists all violations of a configuration at once. It matches
// ErrInvalid.
type InvalidError struct {
	Package    string     // the package that refused: "hybrid"
	Violations Violations // at least one
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
