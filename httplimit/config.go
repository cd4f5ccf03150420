package httplimit

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"

	"github.com/hybridlimit/hybridlimit"
)

// Limit is one limit on requests.
type Limit struct {
	// Limiter decides. Required. It stays the caller's to close, after the
	// server.
	Limiter hybridlimit.Limiter
	// Key returns who is limited. Required. Where it returns "", this limit does
	// not apply to the request; Config.NoKey answers a request that no limit
	// applies to (ErrNoLimit).
	Key KeyFunc
	// Required has Config.NoKey answer a request for which Key returns ""
	// (ErrNoKey): for limits that no request may go without, such as that of each
	// user beside one of all. False: such a request is under the other limits only.
	Required bool
	// Cost returns how many units a request costs. 0 is free: the limit is not
	// asked. Below 0 is answered 400 (ErrCost). Beware of what the client decides: the
	// ContentLength of a body that is sent in chunks is -1, which should cost
	// what the largest one does, or be refused. Nil: 1 for each.
	Cost func(r *http.Request) int64
	// Name is what RateLimit, RateLimit-Policy and problems call the policy,
	// [A-Za-z0-9_.-]+. Empty: Result.Policy, the limiter's own name, or
	// "default" where that is empty too. No two limits may have the same, so of
	// several those need one whose limiters have none, or do not tell it
	// (hybridlimit.Describer), or are used twice.
	Name string
	// Bucket, if set, is sent as X-RateLimit-Bucket with the responses that
	// this limit is the narrowest for: routes that tell the same bucket share
	// it. Of the characters of Name.
	Bucket string
}

// Failure is the answer to a request that an unavailable limiter did not decide.
// A limiter is unavailable if its error matches hybridlimit.ErrUnavailable or
// ErrClosed, or context.DeadlineExceeded where the request itself has no
// deadline. A limiter that has lost Redis and answers by its fallback has
// decided.
//
// No other error lets a request pass, whichever Failure is set, because a client
// may be able to cause it: an error that the key or the cost causes (400:
// ErrKeyTooLong, ErrEmptyKey, ErrCost, ErrExceedsBurst), a limit of LimitFor that
// the limiter refuses (503: ErrInvalid, ErrUnsupported), and any error of a
// limiter of your own that does not wrap one of the above (503). Neither does a
// request pass that ended, or that cannot wait for its place in a queue (503).
// Config.NoKey answers requests without a key.
type Failure uint8

// The ways to fail.
const (
	// FailClosed answers 503. It is the zero value.
	FailClosed Failure = iota
	// FailOpen goes on as if the limit that failed did not apply; the others
	// hold.
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
	// Failure is the answer where a limiter is unavailable. Each failure is
	// logged, or counted in the next line that is: at most one a second and kind.
	// That a client is gone is not logged. Zero: FailClosed.
	Failure Failure
	// NoKey is the answer to a request without a key: NoKeyDeny, NoKeyPass, or a
	// status of 400 to 599. It is logged with method and route, at most once a
	// second: at level Warn, or Debug for NoKeyPass. Denied sees each that may not
	// pass, with ErrNoLimit or ErrNoKey. Zero: NoKeyDeny, a 429.
	NoKey NoKey
	// Hide leaves RateLimit and RateLimit-Policy out, for those to whom the
	// limits are no business. Retry-After stays.
	Hide bool
	// XRateLimit adds X-RateLimit-Limit and -Remaining (units), -Reset (Unix
	// time in seconds, rounded up) and -Reset-After (seconds, to the ms) of the
	// narrowest limit: the fields from before the draft. Both tell when the
	// limit is as if never used. It costs two allocations more.
	XRateLimit bool
	// ShadowHeader adds X-RateLimit-Shadow with the policy's name to admitted
	// requests that a shadow limit would have denied. It tells callers of a limit
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
	if !cfg.NoKey.valid() {
		bad.Add("Config.NoKey", int(cfg.NoKey), "must be NoKeyDeny, NoKeyPass or a status of 400 to 599")
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
		if isNil(l.Limiter) {
			bad.Add(field("Limiter"), nil, "is required")
			l.Limiter = nil
		}
		if l.Key == nil {
			bad.Add(field("Key"), nil, "is required")
		}
		if l.Required && cfg.NoKey == NoKeyPass {
			bad.Add(field("Required"), true, "must be false with Config.NoKey NoKeyPass, which lets requests without a key pass")
		}
		if l.Name != "" && !hybridlimit.CheckName(l.Name) {
			bad.Add(field("Name"), l.Name, "must match [A-Za-z0-9_.-]{1,128}")
		}
		if l.Bucket != "" && !hybridlimit.CheckName(l.Bucket) {
			bad.Add(field("Bucket"), l.Bucket, "must match [A-Za-z0-9_.-]{1,128}")
		}
		if len(limits) == 1 || l.Limiter == nil && l.Name == "" {
			continue
		}
		name, known := l.policyName()
		if !known {
			bad.Add(field("Name"), l.Name, "must be set beside other limits: the limiter does not tell its own")
			continue
		}
		if first, twice := names[name]; twice {
			bad.Add(field("Name"), l.Name, fmt.Sprintf("must be set so that the policy is not called %q as that of limits[%d]", name, first))
			continue
		}
		names[name] = i
	}
	return bad.Err("httplimit")
}

// policyName is what the limit's policy is called, as far as that is known
// before there is a Result.
func (l Limit) policyName() (name string, known bool) {
	if l.Name != "" {
		return l.Name, true
	}
	d, ok := l.Limiter.(hybridlimit.Describer)
	if !ok {
		return "", false
	}
	return cmp.Or(d.Name(), defaultName), true
}

// isNil finds a pointer that is nil in the interface too, as of a constructor
// whose error was not looked at.
func isNil(l hybridlimit.Limiter) bool {
	if l == nil {
		return true
	}
	v := reflect.ValueOf(l)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
