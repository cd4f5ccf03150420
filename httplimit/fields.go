package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// The field names, in the canonical form of http.Header.
const (
	fieldRateLimit  = ratelimitheader.FieldRateLimit
	fieldPolicy     = ratelimitheader.FieldPolicy
	fieldRetryAfter = "Retry-After"
	fieldBucket     = "X-Ratelimit-Bucket"
	fieldShadow     = "X-Ratelimit-Shadow"
	fieldWarning    = "X-Ratelimit-Warning"
	fieldLimit      = "X-Ratelimit-Limit"
	fieldRemaining  = "X-Ratelimit-Remaining"
	fieldReset      = "X-Ratelimit-Reset"
	fieldResetAfter = "X-Ratelimit-Reset-After"
)

// rounding keeps a product such as 0.07·100, which is above 7, from warning of the seventh unit.
const rounding = 1e-9

// fields has room for the fields of a response with up to three limits. It is one allocation, because publish runs for
// each request. The values belong to their response, because a handler may change them in place.
type fields struct {
	values [4]string
	line   [128]byte
}

// publish adds the fields of an admitted request to the response. It keeps the fields of middleware around this one.
func (g *middleware) publish(h http.Header, parts []gate.Part) {
	var own *fields
	var values []string
	var line []byte
	var least *gate.Part
	for i := range parts {
		p := &parts[i]
		if p.Res.Shadowed && g.cfg.ShadowHeader {
			publishName(h, fieldShadow, p.PolicyName())
		}
		it := g.published(p)
		if it == nil || p.Res.Source == hybridlimit.SourceUnknown {
			continue
		}
		if least == nil || p.Res.Remaining < least.Res.Remaining {
			least = p
		}
		if float64(p.Res.Remaining) < g.cfg.WarnBelow*float64(p.Res.Limit)-rounding {
			publishName(h, fieldWarning, it.Name)
		}
		if g.cfg.Hide {
			continue
		}
		if own == nil {
			own = new(fields)
			values, line = own.values[:0], own.line[:0]
		}
		values = append(values, it.Policy)
		line = it.Left(line, p)
	}
	if least == nil {
		return
	}
	g.publishNarrowest(h, least, false) // first, because it reads the RateLimit of other middleware
	if n := len(values); n > 0 {
		values = append(values, unsafe.String(unsafe.SliceData(line), len(line))) // line is not written again
		addField(h, fieldPolicy, values[:n:n])
		addField(h, fieldRateLimit, values[n:])
	}
}

// publishNarrowest sets the fields that describe only the narrowest limit. It keeps the fields of a middleware around
// this one if its limit is narrower. For a denial the fields always describe the limit that denied.
func (g *middleware) publishNarrowest(h http.Header, p *gate.Part, denied bool) {
	bucket := g.limits[p.Index].bucket
	if bucket == "" && !g.cfg.XRateLimit {
		return
	}
	if len(h) > 0 && !denied {
		if left, ok := publishedRemaining(h); ok && left < p.Res.Remaining {
			return
		}
		delete(h, fieldBucket)
	}
	if bucket != "" {
		h[fieldBucket] = []string{bucket}
	}
	if !g.cfg.XRateLimit {
		return
	}
	res := &p.Res
	reset := min(res.ResetAfter, math.MaxInt64/2)
	// The four values share one string and one array, because this runs for each request.
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

// publishedRemaining returns the units left under the narrowest limit of a middleware around this one. ok is false if
// that sent no fields of its narrowest limit.
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

// publishDenial sets the fields of a denial. RateLimit has only the limit that denied, because the draft forbids a t
// that ends after Retry-After. Items of middleware around this one are removed for the same reason; only their
// RateLimit-Policy stays.
func (g *middleware) publishDenial(h http.Header, parts []gate.Part, denied int, retry int64) {
	withdraw(h)
	p := &parts[denied]
	if retry > 0 {
		h[fieldRetryAfter] = []string{strconv.FormatInt(retry, 10)}
	}
	if !gate.Published(p.Res.Source) {
		return
	}
	it := g.published(p)
	if it == nil {
		return
	}
	if !g.cfg.Hide {
		var policies []string
		for i := range parts {
			if one := g.published(&parts[i]); one != nil {
				policies = append(policies, one.Policy)
			}
		}
		addField(h, fieldPolicy, policies)
		h[fieldRateLimit] = []string{string(it.Append(nil, max(0, p.Res.Remaining), retry))}
	}
	g.publishNarrowest(h, p, true)
}

// withdraw removes the fields about the units left.
func withdraw(h http.Header) {
	for _, name := range [...]string{fieldRateLimit, fieldBucket, fieldLimit, fieldRemaining, fieldReset, fieldResetAfter, fieldWarning} {
		delete(h, name)
	}
}

// publishName adds the name of a policy to a field.
func publishName(h http.Header, field, name string) {
	if ratelimitheader.Printable(name) {
		addField(h, field, []string{name})
	}
}

// published returns the item of the part's policy, or nil if the response must not have it.
func (g *middleware) published(p *gate.Part) *gate.Item { return g.limits[p.Index].items.Of(p) }

// addField appends lines to a field. It copies existing lines, because another middleware owns them.
func addField(h http.Header, name string, lines []string) {
	have := h[name]
	if len(have) == 0 {
		h[name] = lines
		return
	}
	h[name] = append(have[:len(have):len(have)], lines...)
}

// retryAfter returns Retry-After in seconds, rounded up, with jitter, and at least 1. It returns 0 if waiting does not
// help.
func (g *middleware) retryAfter(res *hybridlimit.Result) int64 {
	if res.RetryAfter == hybridlimit.Never {
		return 0
	}
	return max(1, ratelimitheader.Seconds(gate.Longer(res.RetryAfter, g.cfg.Jitter)))
}

// ceilUnix returns the Unix time in seconds, rounded up.
func ceilUnix(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}
