package hybridlimit

import "fmt"

// DefaultMaxKeyBytes is the default for the longest key, in bytes. The bound keeps
// one caller from filling the store.
const DefaultMaxKeyBytes = 512

// CheckRequest validates a key and a cost. It returns nil, or an error that wraps
// ErrEmptyKey, ErrKeyTooLong or ErrCost. A maxKeyBytes of 0 means
// DefaultMaxKeyBytes. A key may contain any bytes.
func CheckRequest(key string, n int64, maxKeyBytes int) error {
	if maxKeyBytes == 0 {
		maxKeyBytes = DefaultMaxKeyBytes
	}
	switch {
	case key == "":
		return ErrEmptyKey
	case len(key) > maxKeyBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrKeyTooLong, len(key), maxKeyBytes)
	case n < 1:
		return fmt.Errorf("%w: %d", ErrCost, n)
	}
	return nil
}

// CheckName reports whether s can be the name of a limiter or the prefix of its
// keys: [A-Za-z0-9_.-]+, at most 128 bytes. Names are parts of Redis keys, so
// braces, colons and spaces are excluded.
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
