package hybridlimit

import (
	"fmt"
	"log/slog"
)

// Secret is a value that must not appear in a log. Printing it with %s, %q, %v or %#v, logging it with slog and
// marshaling it all give "[secret]". Empty: there is no secret.
type Secret string

const secretText = "[secret]"

// String returns "[secret]", or "" for an empty Secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return secretText
}

// GoString returns String quoted, for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// MarshalText returns String, for JSON and other encodings.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
