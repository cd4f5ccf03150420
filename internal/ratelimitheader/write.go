package ratelimitheader

import (
	"math"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// MaxInteger is the largest Integer of structured fields: 15 digits (RFC 9651, section 3.3.1).
const MaxInteger = 999_999_999_999_999

// Item writes one limit as an item of RateLimit and of RateLimit-Policy.
type Item struct {
	// Name is the policy's name.
	Name string
	// Limit is the limit that the item describes.
	Limit hybridlimit.Limit
	// Quota is q: the burst size.
	Quota int64
	// Window is w, in seconds. Zero: the item has no w.
	Window int64
	// Policy is the item of RateLimit-Policy.
	Policy string
}

// NewItem returns the item of a limit. It reports false if the item cannot be published: the limit is Unlimited, or the
// name has a byte that is not printable ASCII. A Limit with Period 0 has no window. Calls in flight have a quota unit
// of their own.
func NewItem(name string, limit hybridlimit.Limit) (it Item, ok bool) {
	it = Item{Name: name, Limit: limit, Quota: limit.BurstSize()}
	if limit.Algorithm == hybridlimit.AlgUnlimited {
		return it, false
	}
	b, ok := appendString(nil, name)
	if !ok {
		return it, false
	}
	b = appendInteger(append(b, ";q="...), it.Quota)
	if full := limit.TimeToFull(); full >= time.Second && full != hybridlimit.Never {
		it.Window = Seconds(full)
		b = appendInteger(append(b, ";w="...), it.Window)
	}
	if limit.Algorithm == hybridlimit.AlgConcurrent {
		b = append(b, `;qu="concurrent-requests"`...)
	}
	it.Policy = string(b)
	return it, true
}

// Append appends the item of RateLimit, after a comma if b is not empty. t is left out if 0.
func (it *Item) Append(b []byte, r, t int64) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b, _ = appendString(b, it.Name) // NewItem has checked the name
	b = appendInteger(append(b, ";r="...), r)
	if t > 0 {
		b = appendInteger(append(b, ";t="...), t)
	}
	return b
}

// Effective returns t in seconds, or 0 if the draft cannot express it.
//
// For buckets and queues, t is the time in which r units refill, so that r/t is the limit's rate. If r is 0, t is the
// time until the next unit: the bucket is full in reset, and has one unit (quota-1) units earlier. For windows, t is
// the time until the used units no longer count, at most Period and at least the time in which r units refill at the
// limit's rate.
func (it *Item) Effective(remaining int64, reset time.Duration) int64 {
	if it.Window == 0 || it.Quota <= 0 {
		return 0
	}
	l, r := it.Limit, max(0, remaining)
	each := float64(l.TimeToFull()) / float64(it.Quota) // ns
	var t float64
	switch {
	case windowed(l.Algorithm):
		t = max(min(float64(reset), float64(l.TimeToFull())), float64(r)*each)
	case r == 0:
		t = float64(reset) - float64(it.Quota-1)*each
	default:
		t = float64(r) * each
	}
	// A millionth of a second is a floating-point error.
	return max(1, int64(min(MaxInteger, math.Ceil(t/float64(time.Second)-1e-6))))
}

// windowed reports whether an algorithm counts units in windows.
func windowed(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgFixedWindow || a == hybridlimit.AlgSlidingWindow || a == hybridlimit.AlgSlidingLog ||
		a == hybridlimit.AlgCalendarWindow
}

// Seconds rounds up to whole seconds.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// Printable reports whether s can be a String of structured fields that needs no escapes.
func Printable(s string) bool {
	b, ok := appendString(nil, s)
	return ok && len(b) == len(s)+len(`""`)
}

// appendInteger appends the nearest Integer to n: 0 to MaxInteger.
func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, max(0, min(n, MaxInteger)), 10)
}

// appendString appends a String of structured fields. It returns false if s has a byte that is not printable ASCII.
func appendString(b []byte, s string) ([]byte, bool) {
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c < ' ' || c > '~':
			return b, false
		case c == '"' || c == '\\':
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"'), true
}
