package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// Limit is one limit on requests.
type Limit struct {
	// Limiter decides. Required. The caller closes it, after the server.
	//
	// With a hybridlimit.Acquirer, a request holds its permits until its handler returns, or until its connection is
	// closed if the handler takes it over (http.Hijacker). The handler then gets a net.Conn whose NetConn is the
	// connection below. Permits are acquired before the other limits are asked.
	Limiter hybridlimit.Limiter
	// Key returns the key that the request counts for. Required. If it returns "", this limit does not apply to the
	// request. Config.NoKey answers a request to which no limit applies (ErrNoLimit).
	Key KeyFunc
	// Required makes Key mandatory: Config.NoKey answers each request for which Key returns "" (ErrNoKey). Example: the
	// limit per user, beside a limit for all users. False: only the other limits apply to such a request.
	Required bool
	// Cost returns the units that a request costs. A cost of 0 is free: the limit is not asked. A negative cost is
	// answered 400 (ErrCost). Take care with values that the client chooses: the ContentLength of a chunked body is -1.
	// Charge such a request like the largest body, or reject it. Nil: 1 unit per request.
	Cost func(r *http.Request) int64
	// Of returns the limit that comes with the request, for example the plan in a claim of the caller's token. The
	// limit must be of the limiter's algorithm, or Unlimited or Blocked. False: the key's own limit applies. Of is
	// called after Key and Cost. Take limits from data that the client cannot write, such as a token whose signature
	// was checked.
	//
	// The Limiter needs the method AllowLimit. Those of local, global and hybrid have it. AllowLimit describes what a
	// key keeps when its limit changes. An invalid limit is answered 503 (ErrInvalid).
	//
	// One limit of a middleware may have Of. It is asked last, after the other limits, so that its units need not be
	// given back: Refund would first put the key under its own limit, and cut its units to that burst. For the same
	// reason the units stay used if the client leaves while it waits in a queue. Its items stand last in the fields,
	// and show the limit of the request. Nil: the key's own limit.
	Of func(r *http.Request) (limit hybridlimit.Limit, ok bool)
	// Name is the policy's name in RateLimit, RateLimit-Policy and problems. It consists of 1 to 128 of the characters
	// A-Z a-z 0-9 _ . -. Empty: Result.Policy, which is the limiter's name, or "default" if that is empty too. The
	// names of a middleware's limits must differ. With several limits, set Name if the limiter has no name, is not a
	// adapter.Describer, or is used twice.
	Name string
	// Bucket is sent as X-RateLimit-Bucket if this limit is the narrowest for the response: the one with the fewest
	// units left. Routes with the same bucket share a limit. It has the form of Name. Cost: one allocation per request.
	// Empty: the field is not sent.
	Bucket string
}

// Failure is the answer to a request if the limiter is unavailable. A limiter is unavailable if its error matches
// hybridlimit.ErrUnavailable or ErrClosed, or context.DeadlineExceeded while the request itself has no deadline. A
// limiter that has lost Redis and decides by its fallback is available. A Shedder that is closed is a limiter that is
// unavailable.
//
// Every other error stops the request with either Failure, because a client may be able to cause it:
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
	// FailOpen treats the request as if the failed limit did not apply. The other limits still apply.
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
	// Skip reports whether a request is exempt from all limits and the Shedder, as health checks may be. Nil: no
	// request is exempt.
	Skip func(r *http.Request) bool
	// Class returns the class of a request, for limiters with classes (hybrid.Config.Classes) and for the Shedder:
	// critical requests find units and places that the others leave. A text that is no class of a limiter gets its
	// class with the largest floor, and one that is no class of the Shedder its lowest class, so only a known text
	// makes a request critical. Take the class from the route or from the authenticated caller. Never take it from a
	// field that the client writes, because then all requests are critical. It is called once for each request. The
	// response fields have the figures of the class. Required with a Shedder. Nil: the limits' own class, which is the
	// critical one of a limiter with classes.
	Class func(r *http.Request) string
	// Denied answers a request that must not reach the handler. The response fields are already set, including
	// Retry-After and Cache-Control. Denied should write d.Status. Nil: Problem.
	Denied func(w http.ResponseWriter, r *http.Request, d Denial)
	// Failure is the answer if a limiter is unavailable. Failures are logged, at most one line per second and kind;
	// each line has the number of failures since the previous one. A request whose client has gone is not logged. Zero:
	// FailClosed.
	Failure Failure
	// NoKey is the answer to a request without a key: NoKeyDeny, NoKeyPass, or a status of 400 to 599. Such requests
	// are logged with method and route (the pattern, or else the first 128 bytes of the path), at most one line per
	// second, at level Warn (Debug with NoKeyPass). Without NoKeyPass, Denied is called with ErrNoLimit or ErrNoKey.
	// Zero: NoKeyDeny, which is a 429.
	NoKey NoKey
	// Shedder decides last, for requests that the limits admit: package shed has one, in a module of its own. A request
	// that it sheds is answered 503 with Retry-After, and the limits get its units back. The place is held until the
	// handler returns or panics. So a handler that streams holds its place as long as it streams, and its duration
	// looks like that of a slow call: exempt such requests by Skip. A hijacked connection holds no place after the
	// handler has returned. Without limits, New needs a Shedder. The caller closes it, after the server. Nil: no
	// request is shed.
	Shedder hybridlimit.Shedder
	// Hide leaves out RateLimit and RateLimit-Policy, so that clients do not learn the limits. Retry-After is still
	// sent.
	Hide bool
	// XRateLimit adds the fields in use before the draft, for the narrowest limit: X-RateLimit-Limit and -Remaining in
	// units, -Reset as Unix time in seconds, rounded up, and -Reset-After in seconds with ms. The last two give the
	// time at which the limit is as if never used. Cost: two allocations per request.
	XRateLimit bool
	// ShadowHeader adds X-RateLimit-Shadow, with the policy's name, to the response of an admitted request that a
	// shadow limit would have denied. It announces a limit to clients before it is in force. False: such denials show
	// only in the limiter's counters.
	ShadowHeader bool
	// WarnBelow adds X-RateLimit-Warning to the response of an admitted request for each limit whose units left are
	// below this part of its limit, with the policy's name as in RateLimit. Example: 0.2. Limits without an item in
	// RateLimit have none here. It contradicts Hide. Range: 0 to below 1. Cost: one allocation for each such limit.
	// Zero: the field is not sent.
	WarnBelow float64
	// Jitter lengthens each Retry-After by a random fraction of itself, at most this one, so that clients denied at the
	// same time do not return at the same time. It matters for windows, which end for all clients at once. Range: 0 to
	// 1. Zero: no jitter.
	Jitter float64
	// Logger receives failures. Nil: slog.Default().
	Logger *slog.Logger
}

// checked returns the parts of limits that do not depend on HTTP, or an error with everything wrong with New's
// arguments.
func checked(cfg Config, limits []Limit) ([]gate.Limit, error) {
	var bad adapter.Violations
	gate.CheckedConfig(&bad, uint8(cfg.Failure), uint8(FailOpen), cfg.Shedder, cfg.Class != nil, cfg.Jitter)
	if !cfg.NoKey.valid() {
		bad.Add("Config.NoKey", int(cfg.NoKey), "must be NoKeyDeny, NoKeyPass or a status of 400 to 599")
	}
	if !(cfg.WarnBelow >= 0 && cfg.WarnBelow < 1) { // written so that NaN is a violation too
		bad.Add("Config.WarnBelow", cfg.WarnBelow, "must be at least 0 and below 1")
	}
	bad.AddIf(cfg.Hide && cfg.WarnBelow > 0, "Config.WarnBelow", cfg.WarnBelow, "must be 0 with Config.Hide, which keeps the limits from clients")
	shared := make([]gate.Limit, len(limits))
	for i, l := range limits {
		shared[i] = gate.Limit{Limiter: l.Limiter, Name: l.Name, Brings: l.Of != nil}
		gate.CheckedKey(&bad, i, l.Key != nil, l.Required, cfg.NoKey == NoKeyPass, "requests")
		if l.Bucket != "" && !adapter.CheckName(l.Bucket) {
			bad.Add(fmt.Sprintf("limits[%d].Bucket", i), l.Bucket, "must match [A-Za-z0-9_.-]{1,128}")
		}
	}
	if cfg.Shedder == nil || len(limits) > 0 {
		gate.Checked(&bad, shared)
	}
	return shared, bad.Err("httplimit")
}
