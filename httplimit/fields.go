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

// The field names, as http.Header has them.
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

// maxInteger is the largest of structured fields: 15 digits (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// newPolicyItem writes the item of a policy.
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

// publish adds what the response of an admitted request tells of its limits to
// what middleware around this one has told.
func (g *gate) publish(h http.Header, parts []part) {
	var room [128]byte
	line := room[:0]
	// One array for the lines of both fields: this is done for each request. They
	// are this response's own, since a handler may change them in place.
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
	g.publishNarrowest(h, least, false) // which looks at what others have told
	if n := len(values); n > 0 {
		values = append(values, string(line))
		addField(h, fieldPolicy, values[:n:n])
		addField(h, fieldRateLimit, values[n:])
	}
}

// publishNarrowest sets what is told of one limit only, unless middleware around
// this one has told of a narrower one. A denial has no other.
func (g *gate) publishNarrowest(h http.Header, p *part, denied bool) {
	if p.bucket == "" && !g.cfg.XRateLimit {
		return
	}
	if len(h) > 0 && !denied {
		if left, told := toldRemaining(h); told && left < p.res.Remaining {
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
	// One string and one array for the four: this is done for each request.
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

// toldRemaining is what middleware around this one has told to be left of its
// narrowest limit, as far as it sent fields of that one.
func toldRemaining(h http.Header) (left int64, told bool) {
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

// publishDenial sets what a denial tells: of the limit that denied and of no
// other, since what the draft calls t may not be later than Retry-After. So what
// middleware around this one has told of its limits goes too, but for what they
// are.
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

// withdraw takes back what has been told to be left.
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

// published is the item of the part's policy, if others may be told of it: its
// limiter gave no other answer than what holds for all.
func (p *part) published() *policyItem {
	if p.passed || !holds(p.res.Source) {
		return nil
	}
	if it := p.item(p.key, &p.res); it != nil && !it.secret {
		return it
	}
	return nil
}

// holds says whether an answer is by the limit that all share: not by what a
// process does without Redis, nor by a switch. Of SourceUnknown the figures are
// not known, but the limit is.
func holds(s hybridlimit.Source) bool {
	return s != hybridlimit.SourceFallback && s != hybridlimit.SourceTimeout && s != hybridlimit.SourceSwitch
}

// addField sets a field to lines, or adds them to a copy of those that are
// there.
func addField(h http.Header, name string, lines []string) {
	have := h[name]
	if len(have) == 0 {
		h[name] = lines
		return
	}
	h[name] = append(have[:len(have):len(have)], lines...)
}

// effective is t in seconds. 0: the draft cannot express it.
//
// For buckets and queues it is how long r units take to come back, so that r/t
// is the limit's rate, or with none left how long the next one takes: the level
// is full in ResetAfter, and one unit is there (quota-1) units before that. For
// windows it is until what was used no longer counts, a window at most, and no
// less than r at the limit's rate.
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
	// A part of a millionth is of the floating point, not of the limit.
	return max(1, int64(min(maxInteger, math.Ceil(t/float64(time.Second)-1e-6))))
}

func windowed(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgFixedWindow || a == hybridlimit.AlgSlidingWindow || a == hybridlimit.AlgSlidingLog
}

// retryAfter is Retry-After in seconds: rounded up, never 0, unless waiting does
// not help.
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

// ceilUnix is the Unix time in seconds, rounded up.
func ceilUnix(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// appendLimitItem writes an item of RateLimit behind others. t of 0 is left out.
func appendLimitItem(b []byte, it *policyItem, r, t int64) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b, _ = appendString(b, it.name) // newPolicyItem has seen to it
	b = appendInteger(append(b, ";r="...), r)
	if t > 0 {
		b = appendInteger(append(b, ";t="...), t)
	}
	return b
}

// appendInteger writes an Integer; what a limiter says that is none is the nearest.
func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, max(0, min(n, maxInteger)), 10)
}

// appendString writes a String of structured fields; false where it holds what
// a String may not: anything but printable ASCII.
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
