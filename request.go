package hybridlimit

import "fmt"

// DefaultMaxKeyBytes is the longest key that limiters take unless configured
// otherwise, in bytes. It keeps one caller from filling the store.
const DefaultMaxKeyBytes = 512

// CheckRequest reports what is wrong with a key and a cost: ErrEmptyKey,
// ErrKeyTooLong, ErrCost, or nil. A maxKeyBytes of 0 means DefaultMaxKeyBytes.
// Any bytes may stand in a key.
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

// CheckName reports whether s can name a limiter or prefix its keys:
// [A-Za-z0-9_.-]+, at most 128 bytes. Names become parts of Redis keys, so
// braces, colons and spaces stay out.
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
