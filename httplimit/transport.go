package httplimit

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TransportConfig is how a Transport heeds limits. The zero TransportConfig is
// ready to use.
type TransportConfig struct {
	// Base sends the requests. Nil: http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait bounds what one request waits in all, before it is sent and
	// between its retries, reading refusals included. The context of a request
	// bounds it too. Zero: 30 s; negative: nothing waits, and nothing is retried.
	MaxWait time.Duration
	// MaxRetries is how often one request is sent again. Zero: 3; negative:
	// never.
	MaxRetries int
	// Backoff is the longest wait before the first retry of a response that
	// does not say when to come back; it doubles with each. The wait is drawn
	// from 0 to that. Zero: 500 ms.
	Backoff time.Duration
	// SlowBelow is the fraction of a quota below which requests are spread over
	// what is left of its window, 0 to 1. Zero: 0.2; negative: never before
	// nothing is left.
	SlowBelow float64
	// MaxBlock bounds for how long a Retry-After is believed: after that a
	// request is sent to see. Zero: 10 min.
	MaxBlock time.Duration
	// Key says which requests to a server, which is a scheme and a host, count
	// against the same limits, by what is sent: one user's, say, if this program
	// acts for many. Nil, and where it says nothing: all to that server.
	Key KeyFunc
	// MaxKeys is how many of those are remembered; the least recently used one
	// is forgotten. Zero: 1000.
	MaxKeys int
	// Logger gets a line for each retry, at level Debug. Nil: slog.Default().
	Logger *slog.Logger
}

// Transport is an http.RoundTripper that keeps to the limits that servers tell
// of, as httplimit does, in RateLimit, RateLimit-Policy and Retry-After.
//
// A 429 or 503 with Retry-After holds up all requests of that host until then,
// and a tenth of it more, drawn at random, so that clients do not come back
// together. A request that cannot wait so long is not sent: *BusyError.
//
// What RateLimit tells is a hint. When nothing is left, requests wait for the
// end of t; when little is left (SlowBelow), they are spread over t. Those that
// cannot wait so long wait for MaxWait and are sent then, or at once if their
// context would end before. Quotas of other units than requests are not
// looked at, nor are the fields of responses that come from a cache.
//
// A refused request is sent again if that is safe: its body can be read again
// (GetBody), and the answer was 429, which says that it was not served, or 503
// with Retry-After to an idempotent request (by method, or with an
// Idempotency-Key). When that cannot be in time, or happened too often, the
// caller gets the response; if the server has put everybody off for longer while
// a request waited to be sent again, it gets *BusyError, since the response is
// gone by then. Connections that fail are Base's to deal with. The body of a
// refusal that is followed by a retry is read, so that its connection can be used
// again, if it is said to be small, for 100 ms at most.
//
// It keeps no goroutine, and is safe for concurrent use.
type Transport struct {
	cfg   TransportConfig
	sites sites
}

// BusyError says that a request was not sent, because its server wants none for
// longer than it may wait. http.Client wraps it: use errors.As.
type BusyError struct {
	// RetryAfter is how long the server wants none for, from now on.
	RetryAfter time.Duration
}

// Error says how long.
func (e *BusyError) Error() string {
	return fmt.Sprintf("httplimit: the server wants no request for %v", e.RetryAfter.Round(time.Millisecond))
}

// NewTransport makes a Transport. It fails with all that is wrong with cfg at
// once (ErrInvalid).
func NewTransport(cfg TransportConfig) (*Transport, error) {
	var bad hybridlimit.Violations
	if !(cfg.SlowBelow <= 1) { // NaN too
		bad.Add("TransportConfig.SlowBelow", cfg.SlowBelow, "must be at most 1")
	}
	if cfg.Backoff < 0 {
		bad.Add("TransportConfig.Backoff", cfg.Backoff, "must not be negative")
	}
	if cfg.MaxBlock < 0 {
		bad.Add("TransportConfig.MaxBlock", cfg.MaxBlock, "must not be negative")
	}
	if cfg.MaxKeys < 0 {
		bad.Add("TransportConfig.MaxKeys", cfg.MaxKeys, "must not be negative")
	}
	if err := bad.Err("httplimit"); err != nil {
		return nil, err
	}
	orDefault(&cfg.MaxWait, 30*time.Second)
	orDefault(&cfg.MaxRetries, 3)
	orDefault(&cfg.Backoff, 500*time.Millisecond)
	orDefault(&cfg.SlowBelow, 0.2)
	orDefault(&cfg.MaxBlock, 10*time.Minute)
	orDefault(&cfg.MaxKeys, 1000)
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	return &Transport{cfg: cfg, sites: sites{most: cfg.MaxKeys}}, nil
}

// orDefault fills a zero field in.
func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// CloseIdleConnections is Base's, for http.Client.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// siteKey names the site of a request. What Key says is of one server only.
func (t *Transport) siteKey(req *http.Request) string {
	server := req.URL.Scheme + "://" + req.URL.Host
	if t.cfg.Key == nil {
		return server
	}
	return server + " " + t.cfg.Key(req) // no host has a space
}

// RoundTrip sends a request when its server's limits allow, and sends it again
// if it is refused.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	s := t.sites.of(t.siteKey(req))
	left := max(0, t.cfg.MaxWait)
	for try, out := 0, req; ; try++ {
		seq, waited, err := t.enter(ctx, s, left)
		if err != nil {
			closeBody(out)
			return nil, err
		}
		left -= waited
		resp, err := t.cfg.Base.RoundTrip(out)
		if err != nil {
			return nil, err
		}
		a := t.hear(s, seq, resp)
		if !a.refused || t.cfg.MaxWait < 0 || try >= t.cfg.MaxRetries || !mayRepeat(req, resp.StatusCode, a.told) {
			return resp, nil
		}
		delay := a.after
		if !a.told {
			delay = backoff(t.cfg.Backoff, try)
		}
		if delay > left || tooLate(ctx, delay) {
			return resp, nil
		}
		if out, err = again(req); err != nil {
			return resp, nil //nolint:nilerr // the refusal is the answer to a body that cannot be read again
		}
		left -= discard(resp, left)
		t.logger().DebugContext(ctx, "httplimit: a request is sent again", "status", resp.StatusCode, "retry", try+1, "host", req.URL.Host, "after", delay)
		if a.told {
			continue // enter waits for it, with all others
		}
		if err := sleep(ctx, min(delay, left)); err != nil {
			closeBody(out)
			return nil, err
		}
		left = max(0, left-delay)
	}
}

func (t *Transport) logger() *slog.Logger {
	if t.cfg.Logger == nil {
		return slog.Default()
	}
	return t.cfg.Logger
}

// enter waits until a site wants a request, for most at the longest, and says
// which of the site's requests it is.
func (t *Transport) enter(ctx context.Context, s *site, most time.Duration) (seq uint64, waited time.Duration, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, waited, err
		}
		now := time.Now()
		if block := s.blocked(now); block > 0 {
			if block > most-waited || tooLate(ctx, block) {
				return 0, waited, &BusyError{RetryAfter: block}
			}
			if later := plus(block, jitter(block)); later <= most-waited && !tooLate(ctx, later) {
				block = later
			}
			if err := sleep(ctx, block); err != nil {
				return 0, waited, err
			}
			waited += block
			continue // it may have been put off meanwhile
		}
		patience := most - waited
		if deadline, ok := ctx.Deadline(); ok {
			patience = min(patience, deadline.Sub(now))
		}
		mine := s.slot(now, t.cfg.SlowBelow, patience)
		wait := min(mine.wait, most-waited)
		if mine.wait <= 0 {
			return mine.seq, waited, nil
		}
		if wait <= 0 || tooLate(ctx, wait) {
			s.leave(&mine, true, now)
			return mine.seq, waited, nil
		}
		if err := sleep(ctx, wait); err != nil {
			s.leave(&mine, false, time.Now())
			return 0, waited, err
		}
		return mine.seq, waited + wait, nil
	}
}

// jitter is up to a tenth of a wait.
func jitter(d time.Duration) time.Duration { return time.Duration(rand.Float64() * 0.1 * float64(d)) }

// plus is the sum of two waits, or the longest Duration where the sum is longer.
func plus(a, b time.Duration) time.Duration {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// backoff is drawn from 0 to first·2ᵗʳʸ, or to half the longest Duration.
func backoff(first time.Duration, try int) time.Duration {
	most := min(float64(first)*float64(uint64(1)<<min(try, 62)), math.MaxInt64/2)
	return time.Duration(rand.Float64() * most)
}

// tooLate says whether ctx ends before a wait is over.
func tooLate(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < wait
}

// mayRepeat says whether a refused request may be sent again.
func mayRepeat(req *http.Request, status int, told bool) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	if status == http.StatusTooManyRequests {
		return true
	}
	return told && idempotent(req)
}

// idempotent follows RFC 9110, section 9.2.2.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != ""
}

// again is the request with its body from the beginning.
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

// What is read of a refusal so that its connection can be used again; a longer
// one, or a slower, costs the connection.
const (
	maxDiscard  = 64 << 10
	discardTime = 100 * time.Millisecond
)

// discard is done with a response, and says how long that took.
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
