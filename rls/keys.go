package rls

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

const (
	// maxText is the longest key of a limiter that contains the values of a descriptor as they are. Longer values are
	// hashed: a request that is refused because of long values would pass.
	maxText = 256
	// maxKeyBytes is the longest key of a limiter: a prefix and the key of a rule.
	maxKeyBytes = 512
	// prefixBytes is the length of the part of a key that names its rule.
	prefixBytes = 9
)

// prefixOf returns the beginning of the keys of a rule. It lets LimitFor find the rule of a key: the rest of the key
// has the values of a descriptor, or a hash of them.
func prefixOf(path string) string {
	hash := sha256.Sum256([]byte(path))
	return base64.RawURLEncoding.EncodeToString(hash[:])[:prefixBytes-1] + "|"
}

// keyOfOverride returns the key of a descriptor with a limit of its own. It begins with a NUL, as no prefix does. Each
// text has its length, so that no two descriptors share a key. The period is part of the key: two limits of different
// periods would cut each other's count.
func keyOfOverride(period time.Duration, entries []*ratelimit.RateLimitDescriptor_Entry) string {
	b := make([]byte, 0, 128)
	b = append(b, 0)
	b = strconv.AppendInt(b, int64(period/time.Second), 10)
	for _, e := range entries {
		b = appendText(appendText(b, e.GetKey()), e.GetValue())
	}
	if len(b) <= maxText {
		return string(b)
	}
	hash := sha256.Sum256(b)
	return "\x00#" + base64.RawURLEncoding.EncodeToString(hash[:])
}

func appendText(b []byte, s string) []byte {
	b = append(b, 0)
	b = strconv.AppendInt(b, int64(len(s)), 10)
	b = append(b, ':')
	return append(b, s...)
}
