package ratelimitheader

import (
	"net/http"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// The parser reads back the fields that an Item writes.
func TestItemIsParsed(t *testing.T) {
	for name, limit := range map[string]hybridlimit.Limit{
		"a":          hybridlimit.PerMinute(100),
		`with "\`:    hybridlimit.FixedWindow(5, time.Hour),
		"100 / hour": hybridlimit.SlidingWindow(3, time.Second),
	} {
		it, ok := NewItem(name, limit)
		if !ok {
			t.Fatalf("%q is not published", name)
		}
		h := http.Header{
			FieldPolicy:    {it.Policy},
			FieldRateLimit: {string(it.Append(it.Append(nil, 2, 7), 1, 0))},
		}
		policies, err := ParseRateLimitPolicy(h)
		if err != nil || len(policies) != 1 || policies[0].Name != name || policies[0].Quota != limit.BurstSize() || policies[0].Window != limit.Period {
			t.Errorf("%q: policies %v, %v", name, policies, err)
		}
		limits, err := ParseRateLimit(h)
		if err != nil || len(limits) != 2 || limits[0].Policy != name || limits[0].Remaining != 2 || limits[0].Window != 7*time.Second ||
			limits[1].Remaining != 1 || limits[1].Window != 0 {
			t.Errorf("%q: limits %v, %v", name, limits, err)
		}
	}
	for name, limit := range map[string]hybridlimit.Limit{"a": hybridlimit.Unlimited(), "ä": hybridlimit.PerSecond(1)} {
		if it, ok := NewItem(name, limit); ok {
			t.Errorf("%q, %v is published: %v", name, limit, it)
		}
	}
}
