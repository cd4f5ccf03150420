// Package grpclimit has gRPC interceptors for any hybridlimit.Limiter: for servers, which limit the calls of their
// clients, and for clients, which keep to the limits of servers. It is a module of its own, so that only its users need
// gRPC.
//
//	limit, err := grpclimit.UnaryServer(grpclimit.Config{}, grpclimit.Limit{Limiter: limiter, Key: grpclimit.Peer()})
//	...
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit))
//
// # Denials
//
// An admitted call goes to the handler. A denied one ends with ResourceExhausted and two details (package errdetails of
// google.golang.org/genproto/googleapis/rpc):
//
//	RetryInfo     the wait, Result.RetryAfter; left out if waiting does not help
//	QuotaFailure  a violation for each limit that is known to deny, with the policy's
//	              name as subject and as quota_id; never the key
//
// A ResourceExhausted of gRPC itself, for example for a message above the largest size, has no details.
//
// The trailer grpc-retry-pushback-ms sets the wait of gRPC's own retries (gRFC A6). It is the wait in ms, rounded up.
// It is -1, which stops them, if waiting does not help, or if the wait is longer than the rest of the call's deadline.
// gRPC retries only a call whose answer had no header and no message. A denied call never reaches the handler, so a
// handler that calls grpc.SendHeader changes nothing.
//
// # Quota
//
// With Config.Quota a client sees the limits of a call in two keys of metadata. Their text is that of the fields of
// package httplimit, and so are the rules about limits that are not told:
//
//	ratelimit         the units left; after a denial only those of the limit that denied, and its t is the wait
//	ratelimit-policy  each limit
//
// They are in the header of a call or stream that ends well, and of a stream that has sent a message. Otherwise they
// are in the trailer, because gRPC retries no call whose answer had a header. They are also in the trailer of a unary
// call whose handler has sent the header itself.
//
// They are sent once, because gRPC appends to metadata. If several interceptors of a chain have Quota, the outermost
// one sends the limits of all. A stream tells the limits of its start. The denial of a message replaces them, but only
// before the stream has sent its first message. A call that is refused for another reason, such as the shedder, tells
// nothing.
//
// # Without a decision
//
// If the limiter failed, or if Redis did not answer in time, the code is Unavailable. It has a RetryInfo and a pushback
// if the wait is known. Otherwise the client's own backoff applies, because another server may be able to decide, and a
// pushback of -1 would forbid that too. FailOpen admits the call if the limiter is unavailable (see Failure for the
// errors). Config.NoKey answers a call without a key.
//
// # Several limits
//
// Limiters can be asked together if they are adapter.Joint with each other: limiters of one hub, of one Redis
// client, or of package local. A call that one of them denies then costs no units in any of them. Other limiters are
// asked one after the other. If a later one denies, the earlier ones get their units back, if they have a Refund
// method; until then these units are missing to other calls.
//
// # Classes and the shedder
//
// Config.Class returns the class of a call. Limiters with classes leave a part of their limit to critical calls.
// Config.Shedder is asked last, for unary calls. A call that it sheds is Unavailable with RetryInfo and the pushback,
// and costs no units.
//
// # Streams
//
// A limit of StreamServer counts a stream at its start, or with Limit.PerMessage each message that the stream receives.
// The shedder is not asked. A limit of calls in flight (hybridlimit.Acquirer) counts the streams that are open.
//
// # Time and tests
//
// All waiting uses package time, so the interceptors work with the clock of testing/synctest. Package limittest has
// limiters for tests.
package grpclimit
