// Package httplimit has net/http middleware for any hybridlimit.Limiter, and an http.RoundTripper that keeps to the
// limits of a server. It needs no third-party package.
//
//	mw, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: limiter, Key: httplimit.PeerIP()})
//	...
//	http.ListenAndServe(":8080", mw(mux))
//
// # Response fields
//
// The middleware passes an admitted request to the handler. It adds two fields of
// draft-ietf-httpapi-ratelimit-headers-11 to the response: RateLimit-Policy describes each limit, and RateLimit has the
// units left. They are lists of structured fields (RFC 9651).
//
//	RateLimit-Policy: "api";q=100;w=60
//	RateLimit: "api";r=99;t=60
//
// The parameters are:
//
//	q  the burst
//	w  the time in which the burst refills, in seconds, rounded up: Period for windows, Burst·Period/Rate for
//	   buckets and queues. Left out below one second, which the draft cannot express.
//	r  Result.Remaining
//	t  the time that the r units have to last, in seconds. Left out below one second, but not on a denial
//
// For buckets and queues, t is the time in which r units refill; if r is 0, it is the time until the next unit. For
// windows, t is the time until the used units no longer count, and at least r·w/q. A client that spreads r requests
// over t is therefore not faster than the limit's rate, as the draft requires.
//
// Config.WarnBelow adds X-RateLimit-Warning for each limit of which little is left, for clients that do not parse the
// two fields. Its value is the policy's name. The Warning field of HTTP is obsolete (RFC 9111, section 5.5).
//
// A limit has none of these fields if its fallback decided, because the figures would not be the fleet's. The same holds for a
// limit that a switch overrides, a limit in shadow, an unlimited one, and one that FailOpen has passed over.
//
// A limit of calls in flight has no window, and the quota unit of the draft: "running";q=200;qu="concurrent-requests".
//
// A denied request gets status 429, Cache-Control: no-store, and a problem (RFC
// 9457) with the names of the violated policies. Retry-After is in seconds,
// rounded up, and is left out if waiting does not help. RateLimit then has one
// item, for the violated policy with the longest wait. Its t equals Retry-After,
// because the draft forbids a t that ends later. RateLimit items of a middleware
// around this one are removed. On an admitted request, both middlewares add their
// items, and X-RateLimit-* is of the narrower limit.
//
// # Without a decision
//
// If the limiter failed, or if Redis did not answer in time, the status is 503 and the problem's type is
// temporary-reduced-capacity. FailOpen admits the request if the limiter is unavailable (see Failure for the errors).
// It never applies to a failure that a client can cause: an invalid key or cost is answered 400, and a limit of
// LimitFor or Limit.Of that the limiter rejects is answered 503. Config.NoKey answers a request without a key, by
// default with 429.
//
// # Shedding
//
// Config.Shedder decides after the limits. It protects the process itself, for example from a slow dependency. A
// request that it sheds is answered 503 with Retry-After, and the problem's type is temporary-reduced-capacity. Its
// units go back to the limits. Package shed, a module of its own, has a Shedder.
//
// # Several limits
//
// Limiters can be asked together if they are adapter.Joint with each other: limiters of one hub, of one Redis
// client, or of package local. A request that one of them denies then costs no units in any of them. Other limiters are
// asked one after the other. If a later one denies, the earlier ones get their units back, if they have a Refund
// method; until then these units are missing to other requests. In both cases RateLimit has an item for each limit. A
// limit whose requests bring their own (Limit.Of) is asked after the others.
//
// # Queues
//
// A leaky queue delays a request until its place comes. If the deadline of the request is before that, the answer is
// 503 at once, with FailOpen too. If its context ends while it waits, all its limits get their units back. Cancelling
// frees the place at the end of the queue, so a later request may start at the same time as another.
//
// # Time and tests
//
// All waiting uses package time, so the middleware and Transport work with the clock of testing/synctest. Package
// limittest has limiters for tests.
package httplimit
