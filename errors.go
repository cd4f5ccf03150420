package hybridlimit

import (
	"errors"
	"fmt"
	"strings"
)

// The errors that every limiter shares. Test for them with errors.Is.
var (
	// ErrClosed is returned by a limiter that was closed or shut down.
	ErrClosed = errors.New("hybridlimit: limiter is closed")
	// ErrUnavailable wraps the cause when Redis gave no answer.
	ErrUnavailable = errors.New("hybridlimit: Redis is unavailable")
	// ErrExceedsBurst is returned by verbs that wait, for a cost that the
	// burst can never hold. Allow denies with RetryAfter Never instead.
	ErrExceedsBurst = errors.New("hybridlimit: cost exceeds the burst")
	// ErrNilClient is returned by constructors that need a Redis client.
	ErrNilClient = errors.New("hybridlimit: Redis client is nil")
	// ErrEmptyKey is returned for an empty key.
	ErrEmptyKey = errors.New("hybridlimit: key is empty")
	// ErrKeyTooLong is returned for a key above the configured size.
	ErrKeyTooLong = errors.New("hybridlimit: key is too long")
	// ErrCost is returned for a cost below 1.
	ErrCost = errors.New("hybridlimit: cost must be at least 1")
	// ErrInvalid is matched by every *InvalidError.
	ErrInvalid = errors.New("hybridlimit: invalid configuration")
	// ErrUnsupported is returned by History for an algorithm that keeps no log,
	// and by a constructor for one that its package has not heard of.
	ErrUnsupported = errors.New("hybridlimit: algorithm is not supported")
)

// Violation is one thing wrong with a configuration.
type Violation struct {
	Field   string // "Config.MaxKeys"
	Value   any    // what was given
	Problem string // "must not be negative"
}

// String is the violation as one clause: `Config.MaxKeys (-1) must not be negative`.
func (v Violation) String() string {
	if s, ok := v.Value.(string); ok {
		return fmt.Sprintf("%s (%q) %s", v.Field, s, v.Problem)
	}
	return fmt.Sprintf("%s (%v) %s", v.Field, v.Value, v.Problem)
}

// Violations collects what is wrong before anything is changed.
type Violations []Violation

// Add notes one violation.
func (v *Violations) Add(field string, value any, problem string) {
	*v = append(*v, Violation{field, value, problem})
}

// AddLimit notes everything that l.Validate would report.
func (v *Violations) AddLimit(l Limit) { l.violations(v) }

// Err is nil when nothing was noted, else an *InvalidError of package pkg.
func (v Violations) Err(pkg string) error {
	if len(v) == 0 {
		return nil
	}
	return &InvalidError{Package: pkg, Violations: v}
}

// InvalidError lists all violations of a configuration at once. It matches
// ErrInvalid.
type InvalidError struct {
	Package    string     // who refused: "hybrid"
	Violations Violations // at least one
}

// Error names the package and each field with its value.
func (e *InvalidError) Error() string {
	clauses := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		clauses[i] = v.String()
	}
	return e.Package + ": " + strings.Join(clauses, "; ")
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
