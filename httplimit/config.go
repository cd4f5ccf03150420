package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/hybridlimit/hybridlimit"
)

// Limit is one limit on requests.
type Limit struct {
	// Limiter decides. Required. It stays the caller's to close, after the
	// server.
	Limiter hybridlimit.Limiter
	// Key says who is limited. Required. Where it says nothing (""), this limit
	// does not apply to the request; a request that no limit applies to is a
	// failure (ErrNoLimit), see Config.Failure.
	Key KeyFunc
	// Cost says how many units a request costs. 0 is free: the limit is not
	// asked. Below 0 is a failure. Nil: 1 for each.
	Cost func(r *http.Request) int64
	// Name is what RateLimit, RateLimit-Policy and problems call the policy,
	// [A-Za-z0-9_.-]+. Empty: Result.Policy, the limiter's own name, or
	// "default" where that is empty too. Limits should differ in it, and two
	// that are given here must.
	Name string
	// Bucket, if set, is sent as X-RateLimit-Bucket with the responses that
	// this limit is the narrowest for: routes that tell the same bucket share
	// it. Of the characters of Name.
	Bucket string
}

// Failure says what becomes of a request when a limiter gives no answer: it is
// closed, the key is bad, no limit applies, or the request's context ended.
// A limiter that has lost Redis is none of that: it answers by its fallback.
type Failure uint8

// The ways to fail.
const (
	// FailClosed answers 503. It is the zero value.
	FailClosed Failure = iota
	// FailOpen hands the request on as if the limit did not apply.
	FailOpen
)

// String is "closed" or "open".
func (f Failure) String() string {
	switch f {
	case FailClosed:
		return "closed"
	case FailOpen:
		return "open"
	}
	return fmt.Sprintf("Failure(%d)", uint8(f))
}

// Config is how requests are limited and what responses tell. The zero Config
// is ready to use.
type Config struct {
	// Skip says which requests are not limited: health checks, say. Nil: none.
	Skip func(r *http.Request) bool
	// Denied answers a request that may not proceed. The fields of the
	// response are set before, Retry-After and Cache-Control among them; it
	// should write d.Status. Nil: Problem.
	Denied func(w http.ResponseWriter, r *http.Request, d Denial)
	// Failure says what becomes of a request that a limiter could not decide.
	// Each failure is logged, or counted in the next line that is: at most one
	// a second. Zero: FailClosed.
	Failure Failure
	// Hide leaves RateLimit and RateLimit-Policy out, for those to whom the
	// limits are no business. Retry-After stays.
	Hide bool
	// XRateLimit adds X-RateLimit-Limit and -Remaining (units), -Reset (Unix
	// time in seconds, rounded up) and -Reset-After (seconds, to the ms) of the
	// narrowest limit: the fields from before the draft. Both tell when the
	// limit is as if never used. It costs two allocations more.
	XRateLimit bool
	// ShadowHeader adds X-RateLimit-Shadow with the policy's name where a
	// shadow limit would have denied the request. It tells callers of a limit
	// that is not in force yet. False: it shows in the limiter's counters only.
	ShadowHeader bool
	// Jitter lengthens each Retry-After by a random part of itself, up to this
	// fraction (0.1: a tenth), so that those who were denied together do not
	// come back together. It matters for windows, which end for all at once.
	// 0 to 1; zero: none.
	Jitter float64
	// Logger gets failures. Nil: slog.Default().
	Logger *slog.Logger
}

func violations(cfg Config, limits []Limit) error {
	var bad hybridlimit.Violations
	if cfg.Failure > FailOpen {
		bad.Add("Config.Failure", uint8(cfg.Failure), "must be FailClosed or FailOpen")
	}
	if !(cfg.Jitter >= 0 && cfg.Jitter <= 1) { // NaN too
		bad.Add("Config.Jitter", cfg.Jitter, "must be 0 to 1")
	}
	if len(limits) == 0 {
		bad.Add("limits", "none", "must be at least one")
	}
	names := map[string]int{}
	for i, l := range limits {
		field := func(name string) string { return fmt.Sprintf("limits[%d].%s", i, name) }
		if l.Limiter == nil {
			bad.Add(field("Limiter"), nil, "is required")
		}
		if l.Key == nil {
			bad.Add(field("Key"), nil, "is required")
		}
		if l.Name != "" && !hybridlimit.CheckName(l.Name) {
			bad.Add(field("Name"), l.Name, "must match [A-Za-z0-9_.-]{1,128}")
		}
		if l.Bucket != "" && !hybridlimit.CheckName(l.Bucket) {
			bad.Add(field("Bucket"), l.Bucket, "must match [A-Za-z0-9_.-]{1,128}")
		}
		if first, twice := names[l.Name]; twice && l.Name != "" {
			bad.Add(field("Name"), l.Name, fmt.Sprintf("must not be that of limits[%d]", first))
			continue
		}
		names[l.Name] = i
	}
	return bad.Err("httplimit")
}
