package hybridlimit

import (
	"fmt"
	"log/slog"
)

// Secret is bytes that nobody should read in a log: however a Secret is
// printed, what comes out is that it is one. Empty: there is none.
type Secret string

// minSecretBytes and maxSecretBytes bound a Secret that is set: from the size of
// the hash that it keys (RFC 2104) to what nobody exceeds on purpose.
const (
	minSecretBytes = 32
	maxSecretBytes = 1024
)

const secretText = "[secret]"

// String is "[secret]", or empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return secretText
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// MarshalText is String, for JSON and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// AddSecret notes what is wrong with a secret, without saying it.
func (v *Violations) AddSecret(field string, s Secret) {
	if n := len(s); n > 0 && (n < minSecretBytes || n > maxSecretBytes) {
		v.Add(field, s, fmt.Sprintf("must be %d to %d bytes, not %d", minSecretBytes, maxSecretBytes, n))
	}
}
