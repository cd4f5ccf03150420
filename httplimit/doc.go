// Package httplimit puts any hybridlimit.Limiter in front of an http.Handler,
// and a client that heeds such limits under an http.Client. It needs the
// standard library only.
//
//	mw, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: limiter, Key: httplimit.PeerIP()})
//	...
//	http.ListenAndServe(":8080", mw(mux))
//
// # What a response says
//
// An admitted request goes to the handler, with the fields RateLimit-Policy
// (what is enforced) and RateLimit (what is left) of
// draft-ietf-httpapi-ratelimit-headers-11 on its response:
//
//	RateLimit-Policy: "api";q=100;w=60
//	RateLimit: "api";r=99;t=60
//
// q is the burst and w the time in which it comes back: Period for windows,
// Burst·Period/Rate for buckets and queues, rounded up to seconds, and left out
// below one second, which the draft cannot express. r is Result.Remaining, and t
// what those are enough for: of buckets and queues the time in which r units come
// back, or with none left that until the next one; of windows the time until
// what was used no longer counts, and no less than r·w/q. So a client that
// spreads r over t is not faster than the limit's rate, as the draft asks.
// Nothing of it is sent of a limit that decided by its fallback, where the
// figures would not be the fleet's, or that a switch has put aside, nor of one
// that is in shadow or counts nothing.
//
// A denied one is answered 429 with Retry-After (in seconds, rounded up, and
// none where waiting does not help), Cache-Control: no-store, and a problem of
// RFC 9457 that names the violated policies. A RateLimit field then has the
// violated policy alone (with the longest wait, if there are more), with
// Retry-After as its t, because the draft wants no t to end later than
// Retry-After; what middleware around this one has told to be left goes.
//
// # Without a decision
//
// Where the limiter could not know (it failed, or Redis did not answer in time)
// the status is 503 and the problem is temporary-reduced-capacity. FailOpen
// passes over a limiter that is unavailable (Failure lists its errors), and
// nothing that a client can cause: a key or a cost that no limiter takes is 400,
// and a limit of LimitFor that the limiter refuses is 503. Config.NoKey answers a
// request without a key, with 429 unless it says otherwise.
//
// # Several limits
//
// Limiters that are hybridlimit.Joint with each other (of one hub; of one Redis
// client; of local) are asked together: a request that one limit denies is not
// charged to the others. Others are asked one after the other, and get their
// units back when a later one denies, if they can (Refund); until then, those
// units are missing to others. The RateLimit field has each of them either way.
//
// # Time and tests
//
// All waiting is on package time, so that middleware and Transport run on the
// clock of testing/synctest. Package limittest has limiters for tests.
package httplimit
