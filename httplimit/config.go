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
	// Limiter decides. Required. The caller closes it, after the server.
	Limiter hybridlimit.Limiter
	// Key returns the key that the request counts for. Required. If it returns
	// "", this limit does not apply to the request. Config.NoKey answers a
	// request to which no limit applies (ErrNoLimit).
	Key KeyFunc
	// Required makes Key mandatory: Config.NoKey answers each request for which
	// Key returns "" (ErrNoKey). Example: the limit per user, beside a limit for
	// all users. False: only the other limits apply to such a request.
	Required bool
	// Cost returns the units that a request costs. A cost of 0 is free: the limit
	// is not asked. A negative cost is answered 400 (ErrCost). Take care with
	// values that the client chooses: the ContentLength of a chunked body is -1.
	// Charge such a request like the largest body, or reject it. Nil: 1 unit per
	// request.
	Cost func(r *http.Request) int64
	// Of returns the limit that comes with the request, for example the plan in a
	// claim of the caller's token. The limit must be of the limiter's algorithm,
	// or Unlimited or Blocked. False: the key's own limit applies. Of is called
	// after Key and Cost. Take limits from data that the client cannot write, such
	// as a token whose signature was checked.
	//
	// The Limiter needs the method AllowLimit. Those of local, global and hybrid
	// have it. AllowLimit describes what a key keeps when its limit changes. An
	// invalid limit is answered 503 (ErrInvalid).
	//
	// One limit of a middleware may have Of. It is asked last, after the other
	// limits, so that its units need not be given back: Refund would first put the
	// key under its own limit, and cut its units to that burst. For the same
	// reason the units stay used if the client leaves while it waits in a queue.
	// Nil: the key's own limit.
	Of func(r *http.Request) (limit hybridlimit.Limit, ok bool)
	// Name is the policy's name in RateLimit, RateLimit-Policy and problems. It
	// consists of 1 to 128 of the characters A-Z a-z 0-9 _ . -. Empty:
	// Result.Policy, which is the limiter's name, or "default" if that is empty
	// too. The names of a middleware's limits must differ. With several limits,
	// set Name if the limiter has no name, is not a hybridlimit.Describer, or is
	// used twice.
	Name string
	// Bucket is sent as X-RateLimit-Bucket if this limit is the narrowest for the
	// response: the one with the fewest units left. Routes with the same bucket
	// share a limit. It has the form of Name. Empty: the field is not sent.
	Bucket string
}

// Failure is the answer to a request if the limiter is unavailable. A limiter is
// unavailable if its error matches hybridlimit.ErrUnavailable or ErrClosed, or
// context.DeadlineExceeded while the request itself has no deadline. A limiter
// that has lost Redis and decides by its fallback is available.
//
// Every other error stops the request with either Failure, because a client may
// be able to cause it:
//
//	400  the key or the cost is invalid: ErrKeyTooLong, ErrEmptyKey, ErrCost, ErrExceedsBurst
//	503  the limiter rejects a limit of LimitFor or Limit.Of: ErrInvalid, ErrUnsupported
//	503  a limiter of your own returns an error that wraps none of the above
//	503  the request ended, or cannot wait for its place in a queue
//
// Config.NoKey answers requests without a key.
type Failure uint8

// The answers of a Failure.
const (
	// FailClosed answers 503. It is the zero value.
	FailClosed Failure = iota
	// FailOpen treats the request as if the failed limit did not apply. The other
	// limits still apply.
	FailOpen
)

// String returns "closed" or "open".
func (f Failure) String() string {
	switch f {
	case FailClosed:
		return "closed"
	case FailOpen:
		return "open"
	}
	return fmt.Sprintf("Failure(%d)", uint8(f))
}

// Config configures a middleware. The zero Config is ready to use.
type Config struct {
	// Skip reports whether a request is exempt from all limits, as health checks
	// may be. Nil: no request is exempt.
	Skip func(r *http.Request) bool
	// Denied answers a request that must not reach the handler. The response
	// fields are already set, including Retry-After and Cache-Control. Denied
	// should write d.Status. Nil: Problem.
	Denied func(w http.ResponseWriter, r *http.Request, d Denial)
	// Failure is the answer if a limiter is unavailable. Failures are logged, at
	// most one line per second and kind; each line has the number of failures
	// since the previous one. A request whose client has gone is not logged.
	// Zero: FailClosed.
	Failure Failure
	// NoKey is the answer to a request without a key: NoKeyDeny, NoKeyPass, or a
	// status of 400 to 599. Such requests are logged with method and route, at
	// most one line per second, at level Warn (Debug with NoKeyPass). Without
	// NoKeyPass, Denied is called with ErrNoLimit or ErrNoKey. Zero: NoKeyDeny,
	// which is a 429.
	NoKey NoKey
	// Hide leaves out RateLimit and RateLimit-Policy, so that clients do not
	// learn the limits. Retry-After is still sent.
	Hide bool
	// XRateLimit adds the fields in use before the draft, for the narrowest limit:
	// X-RateLimit-Limit and -Remaining in units, -Reset as Unix time in seconds,
	// rounded up, and -Reset-After in seconds with ms. The last two give the time
	// at which the limit is as if never used. Cost: two allocations per request.
	XRateLimit bool
	// ShadowHeader adds X-RateLimit-Shadow, with the policy's name, to the response
	// of an admitted request that a shadow limit would have denied. It announces a
	// limit to clients before it is in force. False: such denials show only in the
	// limiter's counters.
	ShadowHeader bool
	// Jitter lengthens each Retry-After by a random fraction of itself, at most
	// this one, so that clients denied at the same time do not return at the same
	// time. It matters for windows, which end for all clients at once. Range: 0 to
	// 1. Zero: no jitter.
	Jitter float64
	// Logger receives failures. Nil: slog.Default().
	Logger *slog.Logger
}

// violations returns an error with everything wrong with New's arguments.
func violations(cfg Config, limits []Limit) error {
	var bad hybridlimit.Violations
	if cfg.Failure > FailOpen {
		bad.Add("Config.Failure", uint8(cfg.Failure), "must be FailClosed or FailOpen")
	}
	if !cfg.NoKey.valid() {
		bad.Add("Config.NoKey", int(cfg.NoKey), "must be NoKeyDeny, NoKeyPass or a status of 400 to 599")
	}
	if !(cfg.Jitter >= 0 && cfg.Jitter <= 1) { // written so that NaN is a violation too
		bad.Add("Config.Jitter", cfg.Jitter, "must be 0 to 1")
	}
	if len(limits) == 0 {
		bad.Add("limits", "none", "must be at least one")
	}
	names, of := map[string]int{}, -1
	for i, l := range limits {
		field := func(name string) string { return fmt.Sprintf("limits[%d].%s", i, name) }
		if isNil(l.Limiter) {
			bad.Add(field("Limiter"), nil, "is required")
			l.Limiter = nil
		}
		if l.Key == nil {
			bad.Add(field("Key"), nil, "is required")
		}
		if l.Of != nil {
			if _, ok := l.Limiter.(limited); l.Limiter != nil && !ok {
				bad.Add(field("Of"), "set", fmt.Sprintf("needs a Limiter with the method AllowLimit, as local, global and hybrid have; a %T has none", l.Limiter))
			}
			if of >= 0 {
				bad.Add(field("Of"), "set", fmt.Sprintf("must be nil, because limits[%d] has Of too, and one of them must be asked last; use a middleware for each", of))
			}
			of = i
		}
		if l.Required && cfg.NoKey == NoKeyPass {
			bad.Add(field("Required"), true, "must be false with Config.NoKey NoKeyPass, which admits requests without a key")
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
			bad.Add(field("Name"), l.Name, "must be set because there are several limits and this limiter has no name (hybridlimit.Describer)")
			continue
		}
		if first, twice := names[name]; twice {
			bad.Add(field("Name"), l.Name, fmt.Sprintf("must be another name, because limits[%d] has the name %q too", first, name))
			continue
		}
		names[name] = i
	}
	return bad.Err("httplimit")
}

// policyName returns the name of the limit's policy. known is false if only a
// Result has the name.
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

// isNil reports whether the interface or the pointer in it is nil. A constructor
// whose error was ignored gives such a pointer.
func isNil(l hybridlimit.Limiter) bool {
	if l == nil {
		return true
	}
	v := reflect.ValueOf(l)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
