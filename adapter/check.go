package adapter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hybridlimit/hybridlimit"
)

// DefaultMaxKeyBytes is the default for the longest key, in bytes. The bound keeps one caller from filling the store.
const DefaultMaxKeyBytes = 512

// CheckRequest validates a key and a cost. It returns nil, or an error that wraps ErrEmptyKey, ErrKeyTooLong or
// ErrCost. A maxKeyBytes of 0 means DefaultMaxKeyBytes. A key may contain any bytes.
func CheckRequest(key string, n int64, maxKeyBytes int) error {
	if maxKeyBytes == 0 {
		maxKeyBytes = DefaultMaxKeyBytes
	}
	switch {
	case key == "":
		return hybridlimit.ErrEmptyKey
	case len(key) > maxKeyBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", hybridlimit.ErrKeyTooLong, len(key), maxKeyBytes)
	case n < 1:
		return fmt.Errorf("%w: %d", hybridlimit.ErrCost, n)
	}
	return nil
}

// CheckName reports whether s can be the name of a limiter or the prefix of its keys: [A-Za-z0-9_.-]+, at most 128
// bytes. Names are parts of Redis keys, so braces, colons and spaces are excluded.
func CheckName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_' || c == '.' || c == '-':
		default:
			return false
		}
	}
	return true
}

// Violations collects the invalid fields of a configuration.
type Violations []hybridlimit.Violation

// Add appends one violation.
func (v *Violations) Add(field string, value any, problem string) {
	*v = append(*v, hybridlimit.Violation{Field: field, Value: value, Problem: problem})
}

// AddIf appends one violation if the value is bad.
func (v *Violations) AddIf(bad bool, field string, value any, problem string) {
	if bad {
		v.Add(field, value, problem)
	}
}

// AddLimit appends the violations that l.Validate would report.
func (v *Violations) AddLimit(l hybridlimit.Limit) {
	var bad *hybridlimit.InvalidError
	if errors.As(l.Validate(), &bad) {
		*v = append(*v, bad.Violations...)
	}
}

// Err returns nil for no violations, else an *InvalidError of package pkg.
func (v Violations) Err(pkg string) error {
	if len(v) == 0 {
		return nil
	}
	return &hybridlimit.InvalidError{Package: pkg, Violations: v}
}

// maxClasses is the largest number of classes that a limiter may have besides itself. In package hybrid, each of them
// counts as a process for credit.
const maxClasses = 7

// AddClasses adds the violations of Config.Classes of a limiter with this limit.
func (v *Violations) AddClasses(classes []hybridlimit.Class, limit hybridlimit.Limit) {
	if len(classes) == 0 {
		return
	}
	if len(classes) > maxClasses {
		v.Add("Config.Classes", len(classes), fmt.Sprintf("must not have more than %d classes", maxClasses))
	}
	if limit.Algorithm == hybridlimit.AlgSlidingLog {
		v.Add("Config.Classes", len(classes), "is not for a sliding log, which has no floors")
	}
	for i, class := range classes {
		name, floor := fmt.Sprintf("Config.Classes[%d].Name", i), fmt.Sprintf("Config.Classes[%d].Floor", i)
		switch {
		case !CheckName(class.Name):
			v.Add(name, class.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
		case class.Name == hybridlimit.ClassCritical:
			v.Add(name, class.Name, "is the name of the limiter's own class, whose floor is 0")
		case slices.ContainsFunc(classes[:i], func(o hybridlimit.Class) bool { return o.Name == class.Name }):
			v.Add(name, class.Name, "is the name of another class too")
		}
		switch {
		case !(class.Floor > 0 && class.Floor <= 0.5): // also NaN
			v.Add(floor, class.Floor, "must be above 0 and at most 0.5")
		case slices.ContainsFunc(classes[:i], func(o hybridlimit.Class) bool { return o.Floor == class.Floor }):
			v.Add(floor, class.Floor, "is the floor of another class too")
		}
	}
}

// minSecretBytes and maxSecretBytes bound the length of a Secret. The minimum is the size of the hash that it keys (RFC
// 2104). A value above the maximum is probably a mistake.
const (
	minSecretBytes = 32
	maxSecretBytes = 1024
)

// AddSecret appends a violation if the length of s is invalid. The violation does not contain the secret.
func (v *Violations) AddSecret(field string, s hybridlimit.Secret) {
	if n := len(s); n > 0 && (n < minSecretBytes || n > maxSecretBytes) {
		v.Add(field, s, fmt.Sprintf("must be %d to %d bytes, not %d", minSecretBytes, maxSecretBytes, n))
	}
}
