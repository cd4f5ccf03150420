package grpclimit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// Limit is one limit on calls.
type Limit struct {
	// Limiter decides. Required. The caller closes it, after the server.
	//
	// With a hybridlimit.Acquirer, a call or a stream holds its permits until its handler returns. Permits are acquired
	// before the other limits are asked.
	Limiter hybridlimit.Limiter
	// Key returns the key that the call counts for. Required. If it returns "", this limit does not apply to the call.
	// Config.NoKey answers a call to which no limit applies. For a stream, Key is called once, at its start.
	Key KeyFunc
	// Required makes Key mandatory: Config.NoKey answers each call for which Key returns "". Example: the limit per
	// user, beside a limit for all users. False: only the other limits apply to such a call.
	Required bool
	// Cost returns the units that a call costs. A cost of 0 is free: the limit is not asked. A negative cost is
	// answered InvalidArgument. With PerMessage, Cost is called for each message, which is in Call.Request. Nil: 1
	// unit.
	Cost func(ctx context.Context, c Call) int64
	// Of returns the limit that comes with the call, for example the plan in a claim of the caller's token. The limit
	// must be of the limiter's algorithm, or Unlimited or Blocked. False: the key's own limit applies. Of is called
	// after Key, for a stream once. Take limits from data that the client cannot write.
	//
	// The Limiter needs the method AllowLimit. Those of local, global and hybrid have it. An invalid limit is answered
	// Unavailable. One limit of an interceptor may have Of. It is asked last, because Refund cannot return its units.
	// Nil: the key's own limit.
	Of func(ctx context.Context, c Call) (limit hybridlimit.Limit, ok bool)
	// PerMessage makes the limit count the messages that a stream receives, not the stream's start. To count both, use
	// two limits. After a denial, RecvMsg returns the status error for the rest of the stream, and the message is lost.
	// A unary call has one message. False: a stream counts once, at its start. A limit of calls in flight
	// (hybridlimit.Acquirer) must have false: a call holds its permits until its handler returns.
	PerMessage bool
	// Name is the policy's name in the details of a denial. It consists of 1 to 128 of the characters A-Z a-z 0-9 _ .
	// -. Empty: Result.Policy, which is the limiter's name, or "default" if that is empty too. The names of an
	// interceptor's limits must differ. With several limits, set Name if the limiter has no name, is not a
	// adapter.Describer, or is used twice.
	Name string
}

// Failure is the answer to a call if the limiter is unavailable. A limiter is unavailable if its error matches
// hybridlimit.ErrUnavailable or ErrClosed, or context.DeadlineExceeded while the call itself has no deadline. A limiter
// that has lost Redis and decides by its fallback is available. A Shedder that is closed is a limiter that is
// unavailable.
//
// Every other error stops the call with either Failure, because a client may be able to cause it:
//
//	InvalidArgument   the key or the cost is invalid: ErrKeyTooLong, ErrEmptyKey, ErrCost, ErrExceedsBurst
//	Unavailable       the limiter rejects a limit of LimitFor or Limit.Of: ErrInvalid, ErrUnsupported
//	Unavailable       a limiter of your own returns an error that wraps none of the above
//	Canceled          the client has cancelled the call
//	DeadlineExceeded  the call's deadline has passed, or is before its place in a queue
//
// Config.NoKey answers calls without a key.
type Failure uint8

// The answers of a Failure.
const (
	// FailClosed answers Unavailable. It is the zero value.
	FailClosed Failure = iota
	// FailOpen treats the call as if the failed limit did not apply. The other limits still apply.
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

// Infrastructure reports whether a call is one of gRPC's own services for health checks (grpc.health.v1) or reflection
// (grpc.reflection.v1, v1alpha). Load balancers and kubelets make such calls, without a user, and a denial takes the
// server out of service. A function for Config.Skip that exempts other calls too can call it.
func Infrastructure(_ context.Context, c Call) bool {
	return strings.HasPrefix(c.Method, "/grpc.health.v1.Health/") ||
		strings.HasPrefix(c.Method, "/grpc.reflection.v1.ServerReflection/") ||
		strings.HasPrefix(c.Method, "/grpc.reflection.v1alpha.ServerReflection/")
}

// Config configures a server's interceptor. The zero Config is ready to use.
type Config struct {
	// Skip reports whether a call is exempt from all limits and the Shedder. Nil: Infrastructure, which exempts health
	// checks and reflection.
	Skip func(ctx context.Context, c Call) bool
	// Class returns the class of a call, for limiters with classes (hybrid.Config.Classes) and for the Shedder:
	// critical calls find units and places that the others leave. A text that is no class of a limiter gets its class
	// with the largest floor, and one that is no class of the Shedder its lowest class, so only a known text makes a
	// call critical. Take the class from the method or from the authenticated caller. Never take it from metadata that
	// the client writes, because then all calls are critical. It is called once for each unary call, and once for each
	// stream, at its start. Required with a Shedder. Nil: the limits' own class, which is the critical one of a limiter
	// with classes.
	Class func(ctx context.Context, c Call) string
	// Failure is the answer if a limiter is unavailable. Failures are logged, at most one line per second and kind;
	// each line has the number of failures since the previous one. A call that its client has cancelled is not logged.
	// Zero: FailClosed.
	Failure Failure
	// NoKey is the answer to a call without a key: NoKeyDeny, NoKeyPass, or a code other than OK. Such calls are logged
	// with their method, at most one line per second, at level Warn (Debug with NoKeyPass). Zero: NoKeyDeny, which is
	// ResourceExhausted.
	NoKey NoKey
	// Shedder decides last, for unary calls that the limits admit: package shed has one, in a module of its own. A call
	// that it sheds is answered Unavailable with RetryInfo, and the limits get its units back. The place is held until
	// the handler returns or panics. Without limits, UnaryServer needs a Shedder. The caller closes it, after the
	// server.
	//
	// StreamServer does not ask it. The duration of a stream shows the pace of both sides, so it would look like that
	// of a slow call, and a stream could hold its place for hours. A handler of short streams can ask the Shedder
	// itself. Nil: no call is shed.
	Shedder hybridlimit.Shedder
	// Jitter lengthens each wait that a denial names by a random fraction of itself, at most this one, so that clients
	// denied at the same time do not return at the same time. It matters for windows, which end for all clients at
	// once. Range: 0 to 1. Zero: no jitter.
	Jitter float64
	// Quota tells clients what is left: the metadata ratelimit and ratelimit-policy, with the same text as the fields of
	// package httplimit. They are in the header of a call that succeeds, and in the trailer of one that does not. See
	// the package documentation. False: nothing is sent.
	Quota bool
	// Logger receives failures. Nil: slog.Default().
	Logger *slog.Logger
}

// checked returns the parts of limits that do not depend on gRPC, or an error with everything wrong with the arguments
// of UnaryServer and StreamServer. sheds reports whether the interceptor asks the Shedder.
func checked(cfg Config, limits []Limit, sheds bool) ([]gate.Limit, error) {
	var bad adapter.Violations
	gate.CheckedConfig(&bad, uint8(cfg.Failure), uint8(FailOpen), cfg.Shedder, cfg.Class != nil, cfg.Jitter)
	if !cfg.NoKey.valid() {
		bad.Add("Config.NoKey", uint32(cfg.NoKey), "must be NoKeyDeny, NoKeyPass or a code of 1 to 16")
	}
	shared := make([]gate.Limit, len(limits))
	for i, l := range limits {
		shared[i] = gate.Limit{Limiter: l.Limiter, Name: l.Name, Brings: l.Of != nil}
		gate.CheckedKey(&bad, i, l.Key != nil, l.Required, cfg.NoKey == NoKeyPass, "calls")
	}
	if !sheds || cfg.Shedder == nil || len(limits) > 0 {
		gate.Checked(&bad, shared)
	}
	for i, l := range limits {
		if l.PerMessage && shared[i].Holds() {
			bad.Add(fmt.Sprintf("limits[%d].PerMessage", i), true, "must be false for a limit of calls in flight: a stream holds its permits until it ends")
		}
	}
	return shared, bad.Err("grpclimit")
}
