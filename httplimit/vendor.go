package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// source is a form in which servers describe a limit: one value in each field.
type source struct {
	limit     string   // the field with the quota
	remaining string   // the field with the units left
	resets    []string // the fields with the time of the next units; the first usable one counts
	buckets   []string // the fields that name one of several limits of this form
	forbids   bool     // a refusal may have status 403
	unit      string   // of the limit; other units than requests are read only from a refusal and for Shared
}

// sources are the forms other than RateLimit.
//
// x-ratelimit-reset-requests and -tokens, as OpenAI sends them, are not read: they are the time until the bucket is
// full, and may be minutes later than the next unit.
var sources = [...]source{
	{ // draft-ietf-httpapi-ratelimit-headers-03
		unit: ratelimitheader.UnitRequests, limit: "Ratelimit-Limit", remaining: "Ratelimit-Remaining", resets: []string{"Ratelimit-Reset"},
	},
	{ // GitHub (403, Resource), Discord (Bucket, Reset-After) and many others
		unit: ratelimitheader.UnitRequests, limit: fieldLimit, remaining: fieldRemaining, resets: []string{fieldResetAfter, fieldReset},
		buckets: []string{fieldBucket, "X-Ratelimit-Resource"}, forbids: true,
	},
	anthropic("Requests"),
	anthropic("Tokens"),
	anthropic("Input-Tokens"),
	anthropic("Output-Tokens"),
}

// counts are the fields that only Shared reads, because they have no usable reset: those of OpenAI.
var counts = [...]source{
	{unit: ratelimitheader.UnitRequests, remaining: "X-Ratelimit-Remaining-Requests"},
	{unit: "tokens", remaining: "X-Ratelimit-Remaining-Tokens"},
}

// anthropic returns the source of a unit of Anthropic.
func anthropic(unit string) source {
	name := "Anthropic-Ratelimit-" + unit
	return source{
		limit: name + "-Limit", remaining: name + "-Remaining", resets: []string{name + "-Reset"}, unit: strings.ToLower(unit),
	}
}

// hint is what a response says about one limit.
type hint struct {
	from      *source       // nil: RateLimit
	policy    string        // the policy's name in RateLimit
	partition string        // the partition key in RateLimit, or the bucket
	left      int64         // the units left; -1: unknown
	quota     int64         // 0: unknown
	each      time.Duration // time per unit at the policy's rate; 0: unknown
	ends      time.Duration // the time to the reset; 0: unknown
	unit      string        // of the limit
	requests  bool          // it holds requests up
	over      bool          // it has a reset, which is no time, is in the past, or too far
	mixed     bool          // the server has several limits of this form, and a request may count in another one
}

// hintsOf returns what a response says about limits. If it has RateLimit, other forms are ignored.
func hintsOf(h http.Header, now time.Time) []hint {
	hints := rateLimitOf(h)
	if len(hints) > 0 {
		return hints
	}
	now = serverTime(h, now)
	for i := range sources {
		if one, ok := sources[i].read(h, now); ok {
			hints = append(hints, one)
		}
	}
	return hints
}

// rateLimitOf returns the hints of RateLimit: none if it is malformed, as the draft requires.
func rateLimitOf(h http.Header) (hints []hint) {
	limits, err := ratelimitheader.ParseRateLimit(h)
	if err != nil || len(limits) == 0 {
		return nil
	}
	policies, err := ratelimitheader.ParseRateLimitPolicy(h)
	if err != nil {
		policies = nil
	}
	for _, l := range limits[:min(len(limits), maxWindows)] {
		one := hint{policy: l.Policy, partition: l.PartitionKey, left: l.Remaining, ends: l.Window, unit: ratelimitheader.UnitRequests, requests: true}
		for _, p := range policies {
			if p.Name != l.Policy || p.PartitionKey != l.PartitionKey {
				continue
			}
			one.unit, one.requests = p.Unit, p.Unit == ratelimitheader.UnitRequests
			one.quota, one.each = p.Quota, 0
			if p.Quota > 0 {
				one.each = p.Window / time.Duration(p.Quota)
			}
		}
		hints = append(hints, one)
	}
	return hints
}

// read returns the hint of a source. ok is false without one, or if the units left are no number: such a server is not
// to be believed.
func (src *source) read(h http.Header, now time.Time) (one hint, ok bool) {
	one = hint{from: src, left: -1, unit: src.unit, requests: src.unit == ratelimitheader.UnitRequests}
	if len(h[src.remaining]) > 0 {
		n, ok := decimal(only(h, src.remaining))
		if !ok || n > ratelimitheader.MaxInteger {
			return one, false
		}
		one.left = int64(n)
	}
	for i := 0; i < len(src.resets) && one.ends == 0; i++ {
		one.over = one.over || len(h[src.resets[i]]) > 0
		one.ends = resetOf(only(h, src.resets[i]), now)
	}
	one.over = one.over && one.ends == 0
	// Draft 03 allows policies after the quota: 100, 100;w=60.
	quota, _, _ := strings.Cut(only(h, src.limit), ",")
	if n, ok := decimal(strings.TrimSpace(quota)); ok && n <= ratelimitheader.MaxInteger {
		one.quota = int64(n)
		one.requests = one.requests && one.quota > 0 // a server with a quota of 0 that serves has switched it off
	}
	for i := 0; i < len(src.buckets) && one.partition == ""; i++ {
		one.partition = strings.Clone(only(h, src.buckets[i])) // a window must not keep the other fields in memory
	}
	return one, one.left >= 0 || one.ends > 0
}

// refusalOf returns the part of a response that concerns refusals. hints are empty for a response from a cache.
func refusalOf(status int, h http.Header, hints []hint, now time.Time) (a answer) {
	switch status {
	case http.StatusServiceUnavailable:
		a.after = retryAfterOf(h, now)
		a.refused = true
	case http.StatusTooManyRequests:
		if a.after = retryAfterOf(h, now); a.after == 0 {
			a.after = refusedFor(hints, func(one hint) bool { return one.left == 0 || one.left < 0 && len(hints) == 1 })
		}
		a.refused = true
	case http.StatusForbidden: // of GitHub, or else no refusal
		if a.after = retryAfterOf(h, now); a.after == 0 {
			a.after = refusedFor(hints, func(one hint) bool { return one.left == 0 && one.from != nil && one.from.forbids })
		}
		a.refused = a.after > 0
	}
	a.told = a.after > 0
	return a
}

// refusedFor returns the time until the last reset of the limits that may have refused a request.
func refusedFor(hints []hint, may func(hint) bool) (after time.Duration) {
	for _, one := range hints {
		if may(one) {
			after = max(after, one.ends)
		}
	}
	return after
}

// maxSeconds is the longest time.Duration, in whole seconds.
const maxSeconds = int64(1<<63-1) / int64(time.Second)

// farthest is the farthest reset that is believed. Quotas of a month are known.
const farthest = 366 * 24 * time.Hour

// Numbers above these are an epoch, in seconds or in milliseconds. A number below is a time in seconds.
const (
	epochSeconds = 1e9
	epochMillis  = 1e12
)

// resetOf returns the time to a reset: in seconds, as an epoch, or as a time of RFC 3339. It returns 0 for any other
// text, and if the reset is in the past or too far.
func resetOf(text string, now time.Time) time.Duration {
	n, ok := decimal(text)
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case ok && n > ratelimitheader.MaxInteger:
		return 0
	case ok && n > epochMillis:
		at = time.UnixMilli(int64(n))
	case ok && n > epochSeconds:
		at = time.UnixMilli(int64(n * 1000))
	case ok:
		return believed(seconds(n))
	case err != nil:
		return 0
	}
	return believed(at.Sub(now))
}

// believed returns a time, or 0 if it is in the past or too far.
func believed(after time.Duration) time.Duration {
	if after < 0 || after > farthest {
		return 0
	}
	return after
}

// retryAfterOf returns the wait of retry-after-ms, or else of Retry-After: in seconds, or as a date. Too many seconds
// for a time.Duration are cut to maxSeconds. It returns 0 without a wait, and if the date is in the past.
func retryAfterOf(h http.Header, now time.Time) time.Duration {
	if ms, ok := decimal(only(h, "Retry-After-Ms")); ok {
		if after := believed(seconds(ms / 1000)); after > 0 {
			return after
		}
	}
	text := only(h, fieldRetryAfter)
	if n, ok := decimal(text); ok {
		return seconds(n)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(serverTime(h, now)))
}

// serverTime returns the server's Date if there is one, else now.
func serverTime(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(only(h, "Date")); err == nil {
		return date
	}
	return now
}

// stale reports whether a response comes from a cache: whether its Age is positive.
func stale(h http.Header) bool {
	age, ok := decimal(h.Get("Age"))
	return ok && age > 0
}

// maxValue bounds the values that are read, in bytes. The names of buckets stay in memory.
const maxValue = 64

// only returns the value of a field, or "" if the response has none, if it has two that differ, or if it is too long.
func only(h http.Header, name string) string {
	lines := h[name]
	if len(lines) == 0 || len(lines[0]) > maxValue {
		return ""
	}
	for _, line := range lines[1:] {
		if line != lines[0] {
			return ""
		}
	}
	return strings.TrimSpace(lines[0])
}

// decimal reads a number of digits and at most one point. It refuses signs, exponents, Inf and NaN.
func decimal(text string) (n float64, ok bool) {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && c != '.' {
			return 0, false
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// seconds returns a time, cut to maxSeconds.
func seconds(n float64) time.Duration {
	if n >= float64(maxSeconds) {
		return time.Duration(maxSeconds) * time.Second
	}
	return time.Duration(n * float64(time.Second))
}
