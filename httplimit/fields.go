package httplimit

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// The field names, in the canonical form of http.Header.
const (
	fieldRateLimit  = ratelimitheader.FieldRateLimit
	fieldPolicy     = ratelimitheader.FieldPolicy
	fieldRetryAfter = "Retry-After"
	fieldBucket     = "X-Ratelimit-Bucket"
	fieldShadow     = "X-Ratelimit-Shadow"
	fieldLimit      = "X-Ratelimit-Limit"
	fieldRemaining  = "X-Ratelimit-Remaining"
	fieldReset      = "X-Ratelimit-Reset"
	fieldResetAfter = "X-Ratelimit-Reset-After"
)

// maxInteger is the largest Integer of structured fields: 15 digits (RFC 9651,
// section 3.3.1).
const maxInteger = 999_999_999_999_999

// newPolicyItem formats the item of a policy.
func newPolicyItem(p hybridlimit.Policy, name string) *policyItem {
	it := &policyItem{policy: p, name: name, quota: p.Limit.BurstSize()}
	if p.Shadow || p.Limit.Algorithm == hybridlimit.AlgUnlimited {
		it.secret = true
		return it
	}
	b, ok := appendString(nil, name)
	if !ok {
		it.secret = true
		return it
	}
	b = appendInteger(append(b, ";q="...), it.quota)
	if full := p.Limit.TimeToFull(); full >= time.Second && full != hybridlimit.Never {
		it.window = seconds(full)
		b = appendInteger(append(b, ";w="...), it.window)
	}
	it.text = string(b)
	return it
}

// publish adds the fields of an admitted request to the response. It keeps the
// fields of middleware around this one.
func (g *gate) publish(h http.Header, parts []part) {
	var room [128]byte
	line := room[:0]
	// Both fields share one array, because this runs for each request. The array
	// belongs to this response, because a handler may change it in place.
	var values []string
	var least *part
	for i := range parts {
		p := &parts[i]
		if p.res.Shadowed && g.cfg.ShadowHeader {
			publishShadow(h, p.policyName())
		}
		it := p.published()
		if it == nil || p.res.Source == hybridlimit.SourceUnknown {
			continue
		}
		if least == nil || p.res.Remaining < least.res.Remaining {
			least = p
		}
		if g.cfg.Hide {
			continue
		}
		if values == nil {
			values = make([]string, 0, len(parts)+1)
		}
		values = append(values, it.text)
		line = appendLimitItem(line, it, max(0, p.res.Remaining), it.effective(&p.res))
	}
	if least == nil {
		return
	}
	g.publishNarrowest(h, least, false) // first, because it reads the RateLimit of other middleware
	if n := len(values); n > 0 {
		values = append(values, string(line))
		addField(h, fieldPolicy, values[:n:n])
		addField(h, fieldRateLimit, values[n:])
	}
}

// publishNarrowest sets the fields that describe only the narrowest limit. It keeps
// the fields of a middleware around this one if its limit is narrower. For a denial
// the fields always describe the limit that denied.
func (g *gate) publishNarrowest(h http.Header, p *part, denied bool) {
	if p.bucket == "" && !g.cfg.XRateLimit {
		return
	}
	if len(h) > 0 && !denied {
		if left, ok := publishedRemaining(h); ok && left < p.res.Remaining {
			return
		}
		delete(h, fieldBucket)
	}
	if p.bucket != "" {
		h[fieldBucket] = []string{p.bucket}
	}
	if !g.cfg.XRateLimit {
		return
	}
	res := &p.res
	reset := min(res.ResetAfter, math.MaxInt64/2)
	// The four values share one string and one array, because this runs for each
	// request.
	var room [96]byte
	var ends [4]int
	b := strconv.AppendInt(room[:0], res.Limit, 10)
	ends[0] = len(b)
	b = strconv.AppendInt(b, max(0, res.Remaining), 10)
	ends[1] = len(b)
	b = strconv.AppendInt(b, ceilUnix(time.Now().Add(reset)), 10)
	ends[2] = len(b)
	ms := (reset + time.Millisecond - 1) / time.Millisecond
	b = strconv.AppendFloat(b, float64(ms)/1000, 'f', 3, 64)
	ends[3] = len(b)
	all, values, from := string(b), new([4]string), 0
	for i, name := range [...]string{fieldLimit, fieldRemaining, fieldReset, fieldResetAfter} {
		values[i] = all[from:ends[i]]
		h[name] = values[i : i+1 : i+1]
		from = ends[i]
	}
}

// publishedRemaining returns the units left under the narrowest limit of a
// middleware around this one. ok is false if that sent no fields of its narrowest
// limit.
func publishedRemaining(h http.Header) (left int64, ok bool) {
	if v := h[fieldRemaining]; len(v) > 0 {
		left, err := strconv.ParseInt(v[0], 10, 64)
		return left, err == nil
	}
	if len(h[fieldBucket]) == 0 {
		return 0, false
	}
	limits, err := ratelimitheader.ParseRateLimit(h)
	for i, l := range limits {
		if i == 0 || l.Remaining < left {
			left = l.Remaining
		}
	}
	return left, err == nil && len(limits) > 0
}

// publishDenial sets the fields of a denial. RateLimit has only the limit that
// denied, because the draft forbids a t that ends after Retry-After. Items of
// middleware around this one are removed for the same reason; only their
// RateLimit-Policy stays.
func (g *gate) publishDenial(h http.Header, parts []part, denied int, retry int64) {
	withdraw(h)
	p := &parts[denied]
	if retry > 0 {
		h[fieldRetryAfter] = []string{strconv.FormatInt(retry, 10)}
	}
	if !holds(p.res.Source) {
		return
	}
	it := p.published()
	if it == nil {
		return
	}
	if !g.cfg.Hide {
		var policies []string
		for i := range parts {
			if one := parts[i].published(); one != nil {
				policies = append(policies, one.text)
			}
		}
		addField(h, fieldPolicy, policies)
		h[fieldRateLimit] = []string{string(appendLimitItem(nil, it, max(0, p.res.Remaining), retry))}
	}
	g.publishNarrowest(h, p, true)
}

// withdraw removes the fields with the units left.
func withdraw(h http.Header) {
	for _, name := range [...]string{fieldRateLimit, fieldBucket, fieldLimit, fieldRemaining, fieldReset, fieldResetAfter} {
		delete(h, name)
	}
}

// publishShadow names a shadow limit that would have denied the request.
func publishShadow(h http.Header, name string) {
	if b, ok := appendString(nil, name); ok && len(b) == len(name)+2 {
		addField(h, fieldShadow, []string{name})
	}
}

// published returns the item of the part's policy, or nil if the response must not
// have it.
func (p *part) published() *policyItem {
	if p.passed || !holds(p.res.Source) {
		return nil
	}
	given := &p.given
	if !p.brings {
		given = nil
	}
	if it := p.item(p.key, &p.res, given); it != nil && !it.secret {
		return it
	}
	return nil
}

// holds reports whether an answer follows from the fleet's limit. A decision
// without Redis, or by a switch, does not. With SourceUnknown the figures are
// unknown, but the limit holds.
func holds(s hybridlimit.Source) bool {
	return s != hybridlimit.SourceFallback && s != hybridlimit.SourceTimeout && s != hybridlimit.SourceSwitch
}

// addField appends lines to a field. It copies existing lines, because another
// middleware owns them.
func addField(h http.Header, name string, lines []string) {
	have := h[name]
	if len(have) == 0 {
		h[name] = lines
		return
	}
	h[name] = append(have[:len(have):len(have)], lines...)
}

// effective returns t in seconds, or 0 if the draft cannot express it.
//
// For buckets and queues, t is the time in which r units refill, so that r/t is
// the limit's rate. If r is 0, t is the time until the next unit: the bucket is
// full in ResetAfter, and has one unit (quota-1) units earlier. For windows, t is
// the time until the used units no longer count, at most Period and at least the
// time in which r units refill at the limit's rate.
func (it *policyItem) effective(res *hybridlimit.Result) int64 {
	if it.window == 0 || it.quota <= 0 {
		return 0
	}
	l, r := it.policy.Limit, max(0, res.Remaining)
	each := float64(l.TimeToFull()) / float64(it.quota) // ns
	var t float64
	switch {
	case windowed(l.Algorithm):
		t = max(min(float64(res.ResetAfter), float64(l.Period)), float64(r)*each)
	case r == 0:
		t = float64(res.ResetAfter) - float64(it.quota-1)*each
	default:
		t = float64(r) * each
	}
	// A millionth of a second is a floating-point error.
	return max(1, int64(min(maxInteger, math.Ceil(t/float64(time.Second)-1e-6))))
}

// windowed reports whether an algorithm counts units in windows.
func windowed(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgFixedWindow || a == hybridlimit.AlgSlidingWindow || a == hybridlimit.AlgSlidingLog
}

// retryAfter returns Retry-After in seconds, rounded up, with jitter, and at least
// 1. It returns 0 if waiting does not help.
func (g *gate) retryAfter(res *hybridlimit.Result) int64 {
	if res.RetryAfter == hybridlimit.Never {
		return 0
	}
	after := res.RetryAfter
	if g.cfg.Jitter > 0 {
		more := g.cfg.Jitter * rand.Float64() * float64(after)
		after += time.Duration(min(more, float64(math.MaxInt64/2)))
		if after < 0 {
			after = math.MaxInt64 - 1
		}
	}
	return max(1, seconds(after))
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// ceilUnix returns the Unix time in seconds, rounded up.
func ceilUnix(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// appendLimitItem appends an item of RateLimit, after a comma if b is not empty. t
// is left out if 0.
func appendLimitItem(b []byte, it *policyItem, r, t int64) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b, _ = appendString(b, it.name) // newPolicyItem has checked the name
	b = appendInteger(append(b, ";r="...), r)
	if t > 0 {
		b = appendInteger(append(b, ";t="...), t)
	}
	return b
}

// appendInteger appends the nearest Integer to n: 0 to maxInteger.
func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, max(0, min(n, maxInteger)), 10)
}

// appendString appends a String of structured fields. It returns false if s has a
// byte that is not printable ASCII.
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
