package rls

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	lru "github.com/hashicorp/golang-lru/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
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

const day = 24 * time.Hour

// override is the limit that a descriptor brings.
type override struct {
	limit  hybridlimit.Limit
	period time.Duration
	answer *pb.RateLimitResponse_RateLimit
}

// overrideOf reads the limit of a descriptor.
func overrideOf(d *ratelimit.RateLimitDescriptor_RateLimitOverride) (override, error) {
	// The enums have the same numbers.
	unit := pb.RateLimitResponse_RateLimit_Unit(d.GetUnit())
	period := rules.Period(unit)
	if period == 0 {
		return override{}, status.Error(codes.InvalidArgument, fmt.Sprintf("rls: limit.unit (%d) of a descriptor must be a unit", d.GetUnit()))
	}
	if m := d.GetUnitMultiplier(); m != nil {
		most := uint32(rules.MaxPeriod / period)
		if m.GetValue() < 1 || m.GetValue() > most {
			return override{}, status.Error(codes.InvalidArgument, fmt.Sprintf(
				"rls: limit.unit_multiplier (%d) of a descriptor must be 1 to %d for the unit %v", m.GetValue(), most, unit))
		}
		period *= time.Duration(m.GetValue())
	}
	o := override{
		limit: hybridlimit.FixedWindow(int64(d.GetRequestsPerUnit()), period), period: period,
		answer: &pb.RateLimitResponse_RateLimit{RequestsPerUnit: d.GetRequestsPerUnit(), Unit: unit, UnitMultiplier: d.GetUnitMultiplier()},
	}
	if d.GetRequestsPerUnit() == 0 {
		o.limit = hybridlimit.Blocked()
	}
	return o, nil
}

// overrides has the last limit of each key whose limit comes with the requests. A limiter asks for it with LimitFor. An
// LRU bounds their number: the next request of a key that was forgotten stores its limit again.
//
// AllowLimit of a limiter is not enough: it cannot be asked together with other limits, and Peek and Refund have no
// such form.
type overrides struct {
	of *lru.Cache[string, hybridlimit.Limit]
}

func newOverrides(most int) *overrides {
	of, _ := lru.New[string, hybridlimit.Limit](most) // the error is for a size below 1
	return &overrides{of}
}

// get returns the limit of a key. ok is false if it was forgotten.
func (o *overrides) get(key string) (limit hybridlimit.Limit, ok bool) { return o.of.Get(key) }

// set stores the limit of a key and reports whether the limiter must ask again.
func (o *overrides) set(key string, limit hybridlimit.Limit) (changed bool) {
	if have, ok := o.of.Get(key); ok && have == limit {
		return false
	}
	o.of.Add(key, limit)
	return true
}
