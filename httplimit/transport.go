package httplimit

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/gate"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
)

// TransportConfig configures a Transport. The zero TransportConfig is ready to use.
type TransportConfig struct {
	// Base sends the requests. Nil: http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait bounds the total wait of one request: before it is sent, between its retries, and while the bodies of
	// refusals are read. The request's context bounds it too. Zero: 30 s. Negative: no request waits or is retried.
	MaxWait time.Duration
	// MaxRetries bounds the retries of one request. Zero: 3. Negative: no retries.
	MaxRetries int
	// Pause is the answer to a 429 that names no time: no request is sent to that server (see Key) in this time, and
	// for up to a tenth longer. The refused request waits too, if it can, and is then retried. Each further such
	// refusal in a row doubles the pause, up to MaxBlock. Refusals of requests that were sent before the pause do not
	// double it. A request that the server serves ends the row. Zero: 5 s. Negative: no pause.
	Pause time.Duration
	// Backoff is used only if Pause is negative. A request with a 429 that names no time then waits alone, for a random
	// time from 0 to Backoff. The bound doubles with each retry. Zero: 500 ms.
	Backoff time.Duration
	// SlowBelow is a fraction of the quota, at most 1. If fewer units are left, requests are spread over the rest of
	// the window. Zero: 0.2. Negative: requests are held up only when no unit is left.
	SlowBelow float64
	// MaxBlock bounds the effect of a time that a server names, and of Pause: after this time requests are sent again.
	// Zero: 10 min.
	MaxBlock time.Duration
	// Key groups the requests to one server, which is a scheme and a host: requests with the same key share the
	// server's limits. Example: the user, if the program acts for many users. If a server has a limit for each route or
	// resource, return the route or the resource too: a refusal then holds up no other one. For Discord that is the
	// method, the route and its first id. For GitHub it is "search", "graphql" or "core". Nil or "": all requests to
	// that server.
	Key KeyFunc
	// MaxKeys bounds the pairs of server and key in memory. The least recently used one is removed. Zero: 1000.
	MaxKeys int
	// Shared are limits that this process keeps together with the other processes of the fleet. Nil: none.
	Shared []Share
	// Logger receives a line per retry, at level Debug, and at most one a second for units that a limiter of Shared was
	// not told of, at level Warn. Nil: slog.Default().
	Logger *slog.Logger
}

// Transport is an http.RoundTripper that keeps to the limits of servers. It reads RateLimit and RateLimit-Policy, which
// the middleware of this package sends, and the fields of other servers:
//
//	Retry-After                             a date, or seconds, also with a point
//	retry-after-ms                          OpenAI, Azure OpenAI
//	RateLimit-Limit, -Remaining, -Reset     draft 03
//	X-RateLimit-Limit, -Remaining, -Reset   GitHub, Discord and others; also -Reset-After
//	anthropic-ratelimit-requests-limit ...  Anthropic; also of tokens, input-tokens and output-tokens
//
// A reset is in seconds, an epoch in seconds or milliseconds, or a time of RFC 3339. An epoch or a date is compared
// with the server's Date. If a response has RateLimit, only Retry-After is read besides. The x-ratelimit-reset-requests
// and -tokens of OpenAI are ignored: they are the time until the bucket is full.
//
// # Refusals
//
// A refusal is a response with status 429 or 503. A 403 is a refusal if it has Retry-After, or X-RateLimit-Remaining 0
// and a reset, as GitHub sends it. The time of a refusal is Retry-After. Without it, the time of a 429 or 403 is the
// latest reset of a limit with no units left. All requests to that server (see TransportConfig.Key) are held up for
// that time and up to a tenth longer. The addition is random, so that clients do not return at the same time. A request
// that cannot wait until then is not sent and fails with *BusyError. A 429 without a time is followed by a pause
// (TransportConfig.Pause).
//
// A refused request is retried if that is safe. Its body must be readable again (GetBody). The status must be 429 or
// 403, which means that the request was not served, or 503 with Retry-After if the request is idempotent (by its
// method, or by an Idempotency-Key). If there is no time for a retry, or after MaxRetries, the caller gets the refusal.
// While a request waits for its retry, the server may hold up all requests for longer than this request can wait. It
// then fails with *BusyError, because the refusal is no longer available. Base handles failed connections.
//
// Before a retry, Transport reads the refusal's body, so that the connection can be used again. It does so only if
// Content-Length is at most 64 KB, and for at most 100 ms.
//
// # Hints
//
// The units left in any response are a hint. If no unit is left, requests wait for the reset, which is the end of t in
// RateLimit. If few units are left (SlowBelow), requests are spread over the time until then. A request that cannot
// wait until then is sent after MaxWait or MaxBlock, or at once if its context would end before. Transport ignores
// quotas in units other than requests, and the fields of a response from a cache.
//
// X-RateLimit-Bucket and X-RateLimit-Resource name one of several limits. While Transport knows of two with the same
// TransportConfig.Key, it ignores their hints, because it cannot tell in which of them a request will count.
//
// # Bounds
//
// Bounds keep a server from harming the client. A value that is not usable is ignored: text instead of a number, a
// negative number, a reset in the past or after more than a year, two values that differ, more than 64 bytes. A
// Retry-After or a t of RateLimit that is too large to be added counts as the largest possible time. A response that a
// newer one has overtaken is ignored, and so is a RateLimit of more than 8 KB or 64 items. Eight limits of each server
// and key are remembered.
//
// A Transport starts no goroutines of its own and is safe for concurrent use.
type Transport struct {
	cfg    TransportConfig
	sites  *gate.Recent[*site]
	flying purses
	untold *sometimes.Line
}

// BusyError means that a request was not sent, because its server accepts no requests, or a limit of Shared has no
// units, for longer than the request can wait. http.Client wraps it: use errors.As.
type BusyError struct {
	// RetryAfter is the time, from the error on, in which the server accepts no requests, or the limit has no units.
	RetryAfter time.Duration
}

// Error returns a text with RetryAfter.
func (e *BusyError) Error() string {
	return fmt.Sprintf("httplimit: the server accepts no requests for %v", e.RetryAfter.Round(time.Millisecond))
}

// NewTransport returns a Transport. Its error (ErrInvalid) lists everything wrong with cfg.
func NewTransport(cfg TransportConfig) (*Transport, error) {
	var bad adapter.Violations
	if !(cfg.SlowBelow <= 1) { // written so that NaN is a violation too
		bad.Add("TransportConfig.SlowBelow", cfg.SlowBelow, "must be at most 1")
	}
	bad.AddIf(cfg.Backoff < 0, "TransportConfig.Backoff", cfg.Backoff, "must not be negative")
	bad.AddIf(cfg.MaxBlock < 0, "TransportConfig.MaxBlock", cfg.MaxBlock, "must not be negative")
	bad.AddIf(cfg.MaxKeys < 0, "TransportConfig.MaxKeys", cfg.MaxKeys, "must not be negative")
	for i := range cfg.Shared {
		cfg.Shared[i].check(&bad, i)
	}
	if err := bad.Err("httplimit"); err != nil {
		return nil, err
	}
	cfg.Shared = slices.Clone(cfg.Shared)
	gate.OrDefault(&cfg.MaxWait, 30*time.Second)
	gate.OrDefault(&cfg.MaxRetries, 3)
	gate.OrDefault(&cfg.Pause, 5*time.Second)
	gate.OrDefault(&cfg.Backoff, 500*time.Millisecond)
	gate.OrDefault(&cfg.SlowBelow, 0.2)
	gate.OrDefault(&cfg.MaxBlock, 10*time.Minute)
	gate.OrDefault(&cfg.MaxKeys, 1000)
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	return &Transport{
		cfg: cfg, sites: gate.NewRecent(cfg.MaxKeys, func() *site { return new(site) }), untold: sometimes.Every(time.Second),
	}, nil
}

// CloseIdleConnections calls the method of Base, if it has one. http.Client uses it.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// siteKey returns the key of the request's site. It contains the server, because TransportConfig.Key groups the
// requests to one server.
func (t *Transport) siteKey(req *http.Request) string {
	if t.cfg.Key == nil {
		return server(req)
	}
	return server(req) + " " + t.cfg.Key(req) // unambiguous: a host has no space
}

// server returns the scheme and the host of a request.
func server(req *http.Request) string { return req.URL.Scheme + "://" + req.URL.Host }

// RoundTrip sends a request as soon as its server's limits allow. It retries a refused request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	s := t.sites.Of(t.siteKey(req))
	left := max(0, t.cfg.MaxWait)
	for try, out := 0, req; ; try++ {
		seq, st, waited, err := t.admit(req, s, left)
		if err != nil {
			closeBody(out)
			return nil, err
		}
		left -= waited
		resp, err := t.send(out, &st)
		if err != nil {
			st.end(ctx)
			return nil, err
		}
		a, hints := t.observe(s, seq, resp)
		st.hear(ctx, resp, hints, a)
		if !a.refused || resp.StatusCode == http.StatusServiceUnavailable {
			st.follow(req, resp)
		} else {
			st.giveBack(ctx)
		}
		if !a.refused || t.cfg.MaxWait < 0 || try >= t.cfg.MaxRetries || !mayRepeat(req, resp.StatusCode, a.told) {
			return resp, nil
		}
		delay := a.after
		if !a.told {
			delay = backoff(t.cfg.Backoff, try)
		}
		if delay > left || gate.TooLate(ctx, delay) {
			return resp, nil
		}
		if out, err = again(req); err != nil {
			return resp, nil //nolint:nilerr // the body cannot be read again, so the caller gets the refusal
		}
		left -= discard(resp, left)
		t.logger().DebugContext(ctx, "httplimit: a refused request is retried", "status", resp.StatusCode, "retry", try+1, "host", req.URL.Host, "after", delay)
		if a.told {
			continue // enter waits, as for all requests to this server
		}
		if err := gate.Sleep(ctx, min(delay, left)); err != nil {
			closeBody(out)
			return nil, err
		}
		left = max(0, left-delay)
	}
}

// send sends a request that has taken its units.
func (t *Transport) send(req *http.Request, st *stake) (*http.Response, error) {
	defer st.landed() // also after a panic of Base
	return t.cfg.Base.RoundTrip(req)
}

// admit waits until the site accepts a request and all Shares have its units, for at most the duration most. It returns
// the request's number, its units and the time waited.
func (t *Transport) admit(
	req *http.Request, s *site, most time.Duration,
) (seq uint64, st stake, waited time.Duration, err error) {
	ctx := req.Context()
	for {
		mine, more, err := t.enter(ctx, s, most-waited)
		waited += more
		if err != nil {
			return 0, stake{}, waited, err
		}
		st, wait, err := t.take(req)
		if err == nil && wait == 0 {
			return mine.seq, st, waited, nil
		}
		if err == nil {
			err = pause(ctx, wait, most-waited)
			waited += wait
		}
		if err == nil && st.spend != nil && s.blocked(time.Now()) <= 0 {
			return mine.seq, st, waited, nil
		}
		s.leave(&mine, false, time.Now())
		st.landed()
		st.giveBack(ctx) // of a queue: its place is lost
		if err != nil {
			return 0, stake{}, waited, err
		}
	}
}

// pause waits for the units of a limit, if the request can wait so much time.
func pause(ctx context.Context, wait, most time.Duration) error {
	if wait > most || gate.TooLate(ctx, wait) {
		return &BusyError{RetryAfter: wait}
	}
	return gate.Sleep(ctx, wait)
}

// logger looks up the default logger at each call, because a program may set it after NewTransport.
func (t *Transport) logger() *slog.Logger {
	if t.cfg.Logger == nil {
		return slog.Default()
	}
	return t.cfg.Logger
}

// enter waits until the site accepts a request, for at most the duration most. It returns the request's slot and the
// time waited.
func (t *Transport) enter(ctx context.Context, s *site, most time.Duration) (mine slot, waited time.Duration, err error) {
	for {
		more, busy, err := gate.Enter(ctx, most-waited, s.blocked)
		waited += more
		switch {
		case err != nil:
			return slot{}, waited, err
		case busy > 0:
			return slot{}, waited, &BusyError{RetryAfter: busy}
		}
		hinted := min(most, t.cfg.MaxBlock) - waited // a hint is worth so much waiting
		now, patience := time.Now(), hinted
		if deadline, ok := ctx.Deadline(); ok {
			patience = min(patience, deadline.Sub(now))
		}
		mine = s.slot(now, t.cfg.SlowBelow, patience)
		if mine.wait <= 0 {
			return mine, waited, nil
		}
		wait := min(mine.wait, hinted)
		if wait <= 0 || gate.TooLate(ctx, wait) {
			s.leave(&mine, true, now)
			return mine, waited, nil
		}
		if err := gate.Sleep(ctx, wait); err != nil {
			s.leave(&mine, false, time.Now())
			return slot{}, waited, err
		}
		waited += wait
		if now = time.Now(); s.blocked(now) <= 0 {
			return mine, waited, nil
		}
		s.leave(&mine, false, now) // the server has refused another request meanwhile
	}
}

// backoff returns a random wait from 0 to first·2ᵗʳʸ, or to half the longest time.Duration if that is shorter.
func backoff(first time.Duration, try int) time.Duration {
	most := min(float64(first)*float64(uint64(1)<<min(try, 62)), math.MaxInt64/2)
	return time.Duration(rand.Float64() * most)
}

// mayRepeat reports whether it is safe to retry a refused request.
func mayRepeat(req *http.Request, status int, told bool) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	if status == http.StatusServiceUnavailable {
		return told && idempotent(req)
	}
	return true
}

// idempotent reports whether a request is idempotent by RFC 9110, section 9.2.2, or by an Idempotency-Key.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != ""
}

// again returns a copy of the request whose body starts at the beginning.
func again(req *http.Request) (*http.Request, error) {
	out := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return out, nil
	}
	body, err := req.GetBody()
	out.Body = body
	return out, err
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// Bounds on the part of a refusal's body that is read, in bytes and time. A connection with a longer or slower body is
// closed.
const (
	maxDiscard  = 64 << 10
	discardTime = 100 * time.Millisecond
)

// discard reads and closes the body of a response. It returns the time spent.
func discard(resp *http.Response, most time.Duration) time.Duration {
	if n := resp.ContentLength; n <= 0 || n > maxDiscard || most <= 0 {
		resp.Body.Close()
		return 0
	}
	start := time.Now()
	stop := time.AfterFunc(min(most, discardTime), func() { resp.Body.Close() })
	io.CopyN(io.Discard, resp.Body, resp.ContentLength)
	if stop.Stop() {
		resp.Body.Close()
	}
	return time.Since(start)
}
