package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// refusal returns the error of a call that a server refuses.
func refusal(code codes.Code, retry *durationpb.Duration) error {
	st, err := status.New(code, "refused").WithDetails(&errdetails.RetryInfo{RetryDelay: retry})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// remote answers calls with errors in turn, and then with the last one.
type remote struct {
	mu      sync.Mutex
	answers []error
	sent    []time.Time
}

func (r *remote) invoke(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.answers[min(len(r.sent), len(r.answers)-1)]
	r.sent = append(r.sent, time.Now())
	return err
}

func newClient(t testing.TB, cfg grpclimit.ClientConfig) *grpclimit.Client {
	t.Helper()
	c, err := grpclimit.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func call(ctx context.Context, c *grpclimit.Client, r *remote) error {
	return c.Unary(ctx, "/test.Service/Method", nil, nil, nil, r.invoke)
}

// A refused call is retried after its RetryInfo. Other calls of the target wait too,
// and so do streams of the same Client.
func TestClientWaitsForRetryInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, grpclimit.ClientConfig{Logger: quiet})
		r := &remote{answers: []error{refusal(codes.ResourceExhausted, durationpb.New(10*time.Second)), nil}}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := call(t.Context(), c, r); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 5 {
			wg.Go(func() {
				if err := call(t.Context(), c, r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			_, err := c.Stream(t.Context(), &grpc.StreamDesc{}, nil, "/test.Service/Stream", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, r.invoke(t.Context(), "", nil, nil, nil)
			})
			if err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if len(r.sent) != 8 {
			t.Fatalf("%d calls sent, want 8", len(r.sent))
		}
		for _, at := range r.sent[1:] {
			if wait := at.Sub(start); wait < 10*time.Second || wait > 11*time.Second {
				t.Errorf("sent after %v", wait)
			}
		}
	})
}

// A call with a shorter wait is not sent. Its status is ResourceExhausted, with
// the rest of the wait.
func TestCallsThatCannotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			cfg      grpclimit.ClientConfig
			deadline time.Duration
		}{
			"the deadline is earlier": {grpclimit.ClientConfig{}, 5 * time.Second},
			"MaxWait is shorter":      {grpclimit.ClientConfig{MaxWait: 5 * time.Second}, time.Hour},
			"a negative MaxWait":      {grpclimit.ClientConfig{MaxWait: -1}, time.Hour},
			"the smallest MaxWait":    {grpclimit.ClientConfig{MaxWait: math.MinInt64}, time.Hour},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
			c := newClient(t, tc.cfg)
			r := &remote{answers: []error{refusal(codes.ResourceExhausted, durationpb.New(20*time.Second)), nil}}
			start := time.Now()
			if err := call(ctx, c, r); status.Code(err) != codes.ResourceExhausted || len(r.sent) != 1 {
				t.Errorf("%s: the refusal itself: %v", name, err)
			}
			err := call(ctx, c, r)
			var busy *grpclimit.BusyError
			if !errors.As(err, &busy) || busy.RetryAfter != 20*time.Second || len(r.sent) != 1 || time.Since(start) != 0 {
				t.Errorf("%s: %v, %d sent", name, err, len(r.sent))
			}
			if a := answerOf(err, nil, false); a.code != codes.ResourceExhausted || a.retry.GetRetryDelay().AsDuration() != 20*time.Second {
				t.Errorf("%s: %+v", name, a)
			}
			_, err = c.Stream(ctx, &grpc.StreamDesc{}, nil, "/a/B", nil)
			if !errors.As(err, &busy) {
				t.Errorf("%s: a stream: %v", name, err)
			}
			cancel()
			time.Sleep(21 * time.Second)
			if err := call(t.Context(), c, r); err != nil || len(r.sent) != 2 {
				t.Errorf("%s: afterwards: %v", name, err)
			}
		}
	})
}

// Refusals that delay no call, and waits that are cut.
func TestWhatAServerMaySay(t *testing.T) {
	plain := status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
	for name, tc := range map[string]struct {
		err   error
		sent  int           // including retries
		block time.Duration // afterwards; 0: none
	}{
		"gRPC's own":               {plain, 1, 0},
		"not a status":             {io.ErrUnexpectedEOF, 1, 0},
		"another code":             {refusal(codes.Aborted, durationpb.New(time.Second)), 1, 0},
		"no delay":                 {refusal(codes.ResourceExhausted, nil), 1, 0},
		"a delay of 0":             {refusal(codes.ResourceExhausted, durationpb.New(0)), 1, 0},
		"a negative delay":         {refusal(codes.ResourceExhausted, durationpb.New(-time.Hour)), 1, 0},
		"the smallest delay":       {refusal(codes.ResourceExhausted, &durationpb.Duration{Seconds: math.MinInt64, Nanos: math.MinInt32}), 1, 0},
		"the largest delay":        {refusal(codes.ResourceExhausted, &durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MaxInt32}), 1, 10 * time.Minute},
		"a long delay":             {refusal(codes.ResourceExhausted, durationpb.New(24*time.Hour)), 1, 10 * time.Minute},
		"signs that differ":        {refusal(codes.ResourceExhausted, &durationpb.Duration{Seconds: 1, Nanos: -1}), 4, time.Second - 1},
		"not decided":              {refusal(codes.Unavailable, durationpb.New(time.Second)), 1, time.Second},
		"refused each time":        {refusal(codes.ResourceExhausted, durationpb.New(time.Second)), 4, time.Second},
		"wrapped":                  {fmt.Errorf("wrapped: %w", refusal(codes.ResourceExhausted, durationpb.New(time.Second))), 4, time.Second},
		"of another client inside": {&grpclimit.BusyError{RetryAfter: time.Second}, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, grpclimit.ClientConfig{Logger: quiet})
			r := &remote{answers: []error{tc.err}}
			if err := call(t.Context(), c, r); !errors.Is(err, tc.err) || len(r.sent) != tc.sent {
				t.Errorf("%s: %v, %d sent, want %d", name, err, len(r.sent), tc.sent)
			}
			r.answers = []error{nil}
			now, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			var busy *grpclimit.BusyError
			if err := call(now, c, r); errors.As(err, &busy) != (tc.block > 0) || tc.block > 0 && busy.RetryAfter != tc.block {
				t.Errorf("%s: afterwards %v, want a wait of %v", name, err, tc.block)
			}
		})
	}
}

// A client that leaves while it waits has the status of its context, at once, and
// its call is not sent.
func TestLeavingWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := newLocal(t, "own", hybridlimit.PerMinute(1))
		for name, cfg := range map[string]grpclimit.ClientConfig{"the target": {}, "the own limit": {Limiter: own, MaxWait: time.Hour}} {
			c := newClient(t, cfg)
			r := &remote{answers: []error{refusal(codes.Unavailable, durationpb.New(20*time.Second)), nil}}
			_ = call(t.Context(), c, r)
			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(3*time.Second, leave)
			start := time.Now()
			if err := call(ctx, c, r); status.Code(err) != codes.Canceled || time.Since(start) != 3*time.Second || len(r.sent) != 1 {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
			if err := call(ctx, c, r); status.Code(err) != codes.Canceled {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The refusal at the end of a stream delays later calls.
func TestRefusedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, grpclimit.ClientConfig{})
		cs, err := c.Stream(t.Context(), &grpc.StreamDesc{}, nil, "/a/B", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return refusedStream{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := cs.RecvMsg(nil); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		start := time.Now()
		time.Sleep(4 * time.Second)
		_ = cs.RecvMsg(nil) // repeats the status, which does not extend the wait
		if err := call(t.Context(), c, &remote{answers: []error{nil}}); err != nil || time.Since(start) < 5*time.Second || time.Since(start) > 5500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

type refusedStream struct{ grpc.ClientStream }

func (refusedStream) RecvMsg(any) error {
	return refusal(codes.ResourceExhausted, durationpb.New(5*time.Second))
}

// The client's own limiter spreads its calls, and refuses those that cannot wait.
func TestOwnLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, limit := range map[string]hybridlimit.Limit{"bucket": hybridlimit.TokenBucket(1, time.Second, 1), "queue": hybridlimit.LeakyQueue(1, time.Second, 100)} {
			recorder := limittest.Record(newLocal(t, "own", limit))
			c := newClient(t, grpclimit.ClientConfig{Limiter: recorder})
			r := &remote{answers: []error{nil}}
			start := time.Now()
			for range 5 {
				if err := call(t.Context(), c, r); err != nil {
					t.Error(name, err)
				}
			}
			if wait := time.Since(start); wait < 4*time.Second || wait > 4*time.Second+10*time.Millisecond {
				t.Errorf("%s: five calls in %v", name, wait)
			}
			soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			var busy *grpclimit.BusyError
			if err := call(soon, c, r); !errors.As(err, &busy) || len(r.sent) != 5 {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			if recorder.Keys()[0] != "target:" {
				t.Error(recorder.Keys())
			}
		}
	})
	none := newClient(t, grpclimit.ClientConfig{Limiter: limittest.DenyAll(time.Hour), LimiterKey: func(_ context.Context, c grpclimit.Call) string { return "" }})
	if err := call(t.Context(), none, &remote{answers: []error{nil}}); err != nil {
		t.Error("no key:", err)
	}
	for name, tc := range map[string]struct {
		l    hybridlimit.Limiter
		code codes.Code
	}{
		"never":       {limittest.DenyAll(hybridlimit.Never), codes.ResourceExhausted},
		"closed":      {failing{hybridlimit.ErrClosed}, codes.Unavailable},
		"a huge key":  {failing{hybridlimit.ErrKeyTooLong}, codes.InvalidArgument},
		"a fallback":  {limittest.Play(hybridlimit.Result{Allowed: true, Source: hybridlimit.SourceFallback}), codes.OK},
		"wait beyond": {limittest.DenyAll(time.Hour), codes.ResourceExhausted},
	} {
		r := &remote{answers: []error{nil}}
		err := call(t.Context(), newClient(t, grpclimit.ClientConfig{Limiter: tc.l}), r)
		if status.Code(err) != tc.code || (len(r.sent) == 1) != (tc.code == codes.OK) {
			t.Errorf("%s: %v", name, err)
		}
		if a := answerOf(err, nil, false); name == "never" && a.retry != nil {
			t.Errorf("%+v", a)
		}
	}
}

// A call that cannot wait for its place in the own queue, or leaves, gives it back.
func TestPlacesInTheOwnQueueComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newLocal(t, "own", hybridlimit.LeakyQueue(1, time.Minute, 10))
		c := newClient(t, grpclimit.ClientConfig{Limiter: queue, MaxWait: time.Hour})
		r := &remote{answers: []error{nil}}
		if err := call(t.Context(), c, r); err != nil {
			t.Fatal(err)
		}
		before, err := queue.Peek(t.Context(), "target:")
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		for _, ctx := range []context.Context{soon, leaving} {
			if err := call(ctx, c, r); err == nil {
				t.Error("sent")
			}
			if after, err := queue.Peek(t.Context(), "target:"); err != nil || after.Remaining < before.Remaining {
				t.Errorf("%d places left, before %d (%v)", after.Remaining, before.Remaining, err)
			}
		}
	})
}

// Only MaxKeys targets are remembered: the least recently used one is forgotten.
func TestThousandsOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type who struct{}
		c := newClient(t, grpclimit.ClientConfig{MaxKeys: 100, MaxWait: -1, Key: func(ctx context.Context, _ grpclimit.Call) string { return fmt.Sprint(ctx.Value(who{})) }})
		refuse := &remote{answers: []error{refusal(codes.ResourceExhausted, durationpb.New(time.Minute))}}
		for i := range 5000 {
			_ = call(context.WithValue(t.Context(), who{}, i), c, refuse)
		}
		if len(refuse.sent) != 5000 {
			t.Errorf("%d sent: a key delays another", len(refuse.sent))
		}
		var held int
		for i := range 5000 {
			var busy *grpclimit.BusyError
			if errors.As(call(context.WithValue(t.Context(), who{}, 4999-i), c, &remote{answers: []error{nil}}), &busy) {
				held++
			}
		}
		if held != 100 {
			t.Errorf("%d targets are remembered, want 100", held)
		}
	})
}

func TestClientViolations(t *testing.T) {
	cfg := grpclimit.ClientConfig{MaxBlock: -1, MaxKeys: -1, LimiterKey: fixed("k")}
	_, a := grpclimit.NewClient(cfg)
	_, b := grpclimit.UnaryClient(cfg)
	_, c := grpclimit.StreamClient(cfg)
	for _, err := range []error{a, b, c} {
		for _, want := range []string{"ClientConfig.MaxBlock", "ClientConfig.MaxKeys", "ClientConfig.LimiterKey"} {
			if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s is not in %v", want, err)
			}
		}
	}
}
