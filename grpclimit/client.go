package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// ClientConfig configures a Client. The zero ClientConfig is ready to use.
type ClientConfig struct {
	// MaxWait bounds the total wait of one call: before it is sent, and between its retries. The call's context bounds
	// it too. Zero: 30 s. Negative: no call waits or is retried.
	MaxWait time.Duration
	// MaxRetries bounds the retries of a unary call that was refused with ResourceExhausted and RetryInfo. A stream is
	// not retried. gRPC's own retries (the service config) come on top, so set only one of the two. Zero: 3. Negative:
	// no retries.
	MaxRetries int
	// MaxBlock bounds the effect of a RetryInfo: after this time calls are sent again. Zero: 10 min.
	MaxBlock time.Duration
	// Key groups the calls to one target: calls with the same key share the server's limits. Example: the user, if the
	// program acts for many users. Nil or "": all calls to that target.
	Key KeyFunc
	// MaxKeys bounds the pairs of target and key in memory. The least recently used one is removed. Zero: 1000.
	MaxKeys int
	// Limiter limits the calls before they are sent: a call waits for its unit, for at most MaxWait. If the Limiter has
	// no answer, the call fails with Unavailable. The caller closes it. Nil: no limit of the client's own.
	Limiter hybridlimit.Limiter
	// LimiterKey returns the key that the Limiter counts a call for. "": the call is not limited. Nil: the target of
	// the connection.
	LimiterKey KeyFunc
	// Logger receives a line per retry, at level Debug. Nil: slog.Default().
	Logger *slog.Logger
}

// Client keeps to the limits of servers. It reads them from the RetryInfo that UnaryServer and StreamServer send.
//
// A refusal is a call that ends with ResourceExhausted or Unavailable and a RetryInfo. It delays all calls to that
// target (see ClientConfig.Key) for that time and up to a tenth longer. The addition is random, so that clients do not
// return at the same time. A call with a shorter wait is not sent, and fails with *BusyError.
//
// A ResourceExhausted of gRPC itself, for example for a message that is too large, has no RetryInfo. It is neither
// retried nor held up. A RetryInfo with a wait that is negative or 0 counts as none.
//
// A Client starts no goroutines and is safe for concurrent use. Use its methods as interceptors of any number of
// connections. They then share what they learn about a target.
type Client struct {
	cfg     ClientConfig
	targets *gate.Recent[*target]
}

// BusyError means that a call was not sent, because its target accepts no calls for longer than the call can wait, or
// because the client's own Limiter admits none. Its status is ResourceExhausted with RetryInfo.
type BusyError struct {
	// RetryAfter is the time, from the error on, in which no call is sent. hybridlimit.Never: waiting does not help.
	RetryAfter time.Duration
}

// Error returns a text with RetryAfter.
func (e *BusyError) Error() string {
	if e.RetryAfter == hybridlimit.Never {
		return "grpclimit: the call was not sent: its limit never admits it"
	}
	return fmt.Sprintf("grpclimit: the call was not sent: no call is accepted for %v", e.RetryAfter.Round(time.Millisecond))
}

// GRPCStatus returns ResourceExhausted, with RetryInfo if waiting helps. Package status uses it.
func (e *BusyError) GRPCStatus() *status.Status {
	st := status.New(codes.ResourceExhausted, e.Error())
	if e.RetryAfter == hybridlimit.Never {
		return st
	}
	if full, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}); err == nil {
		return full
	}
	return st
}

// NewClient returns a Client. Its error (ErrInvalid) lists everything wrong with cfg.
func NewClient(cfg ClientConfig) (*Client, error) {
	var bad adapter.Violations
	bad.AddIf(cfg.MaxBlock < 0, "ClientConfig.MaxBlock", cfg.MaxBlock, "must not be negative")
	bad.AddIf(cfg.MaxKeys < 0, "ClientConfig.MaxKeys", cfg.MaxKeys, "must not be negative")
	bad.AddIf(cfg.LimiterKey != nil && cfg.Limiter == nil, "ClientConfig.LimiterKey", "set", "needs a Limiter")
	if cfg.Limiter != nil && gate.IsNil(cfg.Limiter) {
		bad.Add("ClientConfig.Limiter", nil, "must be a limiter, or nil without a type")
	}
	if err := bad.Err("grpclimit"); err != nil {
		return nil, err
	}
	gate.OrDefault(&cfg.MaxWait, 30*time.Second)
	gate.OrDefault(&cfg.MaxRetries, 3)
	gate.OrDefault(&cfg.MaxBlock, 10*time.Minute)
	gate.OrDefault(&cfg.MaxKeys, 1000)
	cfg.MaxWait = max(cfg.MaxWait, 0)
	return &Client{cfg: cfg, targets: gate.NewRecent(cfg.MaxKeys, func() *target { return new(target) })}, nil
}

// UnaryClient returns the method Unary of a new Client.
func UnaryClient(cfg ClientConfig) (grpc.UnaryClientInterceptor, error) {
	c, err := NewClient(cfg)
	if err != nil {
		return nil, err
	}
	return c.Unary, nil
}

// StreamClient returns the method Stream of a new Client. To share the state of a target between unary calls and
// streams, use NewClient.
func StreamClient(cfg ClientConfig) (grpc.StreamClientInterceptor, error) {
	c, err := NewClient(cfg)
	if err != nil {
		return nil, err
	}
	return c.Stream, nil
}

// Unary is a grpc.UnaryClientInterceptor. It sends a call as soon as the limits of its target allow, and retries a
// refused call.
func (c *Client) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := Call{Method: method, Request: req}
	t := c.targetOf(ctx, call, cc)
	left := c.cfg.MaxWait
	for try := 0; ; try++ {
		waited, err := c.enter(ctx, t, left)
		if err != nil {
			return err
		}
		left -= waited
		if waited, err = c.take(ctx, call, cc, left); err != nil {
			return err
		}
		left -= waited
		err = invoker(ctx, method, req, reply, cc, opts...)
		if err == nil {
			return nil
		}
		code, delay, told := c.observe(t, err)
		if !told || code != codes.ResourceExhausted || try >= c.cfg.MaxRetries || delay > left || gate.TooLate(ctx, delay) {
			return err
		}
		c.logger().DebugContext(ctx, "grpclimit: a refused call is retried", "method", method, "retry", try+1, "after", delay)
	}
}

// Stream is a grpc.StreamClientInterceptor. It starts a stream as soon as the limits of its target allow. A refusal of
// a stream delays later calls. The stream itself is not retried, because its messages are no longer available.
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	call := Call{Method: method}
	t := c.targetOf(ctx, call, cc)
	waited, err := c.enter(ctx, t, c.cfg.MaxWait)
	if err != nil {
		return nil, err
	}
	if _, err := c.take(ctx, call, cc, c.cfg.MaxWait-waited); err != nil {
		return nil, err
	}
	cs, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		c.observe(t, err)
		return nil, err
	}
	return &observed{ClientStream: cs, client: c, target: t}, nil
}

// observed is a stream whose end is noted.
type observed struct {
	grpc.ClientStream
	client *Client
	target *target
	over   bool // the status is noted: RecvMsg may repeat it later, when its wait is old
}

// RecvMsg notes the refusal in the stream's status. gRPC allows one RecvMsg at a time, so over needs no lock.
func (o *observed) RecvMsg(m any) error {
	err := o.ClientStream.RecvMsg(m)
	if err != nil && !o.over {
		o.over = true
		o.client.observe(o.target, err)
	}
	return err
}

// targetOf returns the state of the call's target.
func (c *Client) targetOf(ctx context.Context, call Call, cc *grpc.ClientConn) *target {
	key := targetName(cc)
	if c.cfg.Key != nil {
		key += " " + c.cfg.Key(ctx, call) // unambiguous: gRPC writes a space in a target as %20
	}
	return c.targets.Of(key)
}

func targetName(cc *grpc.ClientConn) string {
	if cc == nil { // in a test of an interceptor
		return ""
	}
	return cc.CanonicalTarget()
}

// enter waits until the target accepts a call, for at most the duration most.
func (c *Client) enter(ctx context.Context, t *target, most time.Duration) (waited time.Duration, err error) {
	waited, busy, err := gate.Enter(ctx, most, t.blocked)
	switch {
	case err != nil:
		return waited, endedWaiting(ctx)
	case busy > 0:
		return waited, &BusyError{RetryAfter: busy}
	}
	return waited, nil
}

// take waits for a unit of the client's own Limiter, for at most the duration most.
func (c *Client) take(ctx context.Context, call Call, cc *grpc.ClientConn, most time.Duration) (waited time.Duration, err error) {
	if c.cfg.Limiter == nil {
		return 0, nil
	}
	var key string
	if c.cfg.LimiterKey != nil {
		if key = c.cfg.LimiterKey(ctx, call); key == "" {
			return 0, nil
		}
	} else {
		key = "target:" + targetName(cc)
	}
	for {
		res, err := c.cfg.Limiter.Allow(ctx, key)
		if err != nil && res.Source == hybridlimit.SourceUnknown {
			return waited, undecided(ctx, err)
		}
		wait := res.Delay
		if !res.Allowed {
			wait = max(res.RetryAfter, time.Millisecond) // a limiter of one's own may name no wait
		}
		if wait <= 0 {
			return waited, nil
		}
		if wait > most-waited || gate.TooLate(ctx, wait) {
			gate.GiveBack(ctx, c.cfg.Limiter, key, 1, &res)
			return waited, &BusyError{RetryAfter: wait}
		}
		if gate.Sleep(ctx, wait) != nil {
			gate.GiveBack(ctx, c.cfg.Limiter, key, 1, &res)
			return waited, endedWaiting(ctx)
		}
		if waited += wait; res.Allowed {
			return waited, nil
		}
	}
}

// undecided returns the status of a call that the client's own Limiter did not decide.
func undecided(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case gate.BadRequest(err):
		return status.Error(codes.InvalidArgument, "grpclimit: the client's limiter refuses the key of the call")
	}
	return status.Error(codes.Unavailable, "grpclimit: the client's limiter cannot decide now")
}

// endedWaiting returns the status of a call whose context ended while it waited, or whose deadline is too close.
func endedWaiting(ctx context.Context) error {
	if ctx.Err() == nil {
		return status.Error(codes.DeadlineExceeded, "grpclimit: the deadline is before the end of the wait")
	}
	return status.FromContextError(ctx.Err()).Err()
}

// observe notes a refusal. told is false for any other error.
func (c *Client) observe(t *target, err error) (code codes.Code, delay time.Duration, told bool) {
	var busy *BusyError
	if errors.As(err, &busy) { // of an interceptor inside this one
		return codes.ResourceExhausted, busy.RetryAfter, false
	}
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.ResourceExhausted && st.Code() != codes.Unavailable {
		return st.Code(), 0, false
	}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.RetryInfo)
		if !ok || info.GetRetryDelay() == nil {
			continue
		}
		if delay = info.GetRetryDelay().AsDuration(); delay <= 0 { // AsDuration is the nearest time.Duration
			continue
		}
		t.block(time.Now().Add(min(delay, c.cfg.MaxBlock)))
		return st.Code(), delay, true
	}
	return st.Code(), 0, false
}

// logger looks up the default logger at each call, because a program may set it after NewClient.
func (c *Client) logger() *slog.Logger {
	if c.cfg.Logger == nil {
		return slog.Default()
	}
	return c.cfg.Logger
}

// target is the state of one server's limits.
type target struct {
	mu    sync.Mutex
	until time.Time // no call is sent before
}

// blocked returns for how long the server accepts no call.
func (t *target) blocked(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until.Sub(now)
}

// block lets no call be sent before a time.
func (t *target) block(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.until) {
		t.until = until
	}
}
