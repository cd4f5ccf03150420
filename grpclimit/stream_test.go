package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// A limit counts a stream once, or each of its messages. Both can be combined.
func TestStreamsAndMessages(t *testing.T) {
	starts, each := newLocal(t, "starts", hybridlimit.PerHour(2)), newLocal(t, "each", hybridlimit.PerHour(5))
	limits := []grpclimit.Limit{{Limiter: starts, Key: fixed("k")}, {Limiter: each, Key: fixed("k"), PerMessage: true}}
	for i, want := range []struct {
		code     codes.Code
		received int
		policies string
	}{
		{codes.OK, 3, ""},
		{codes.ResourceExhausted, 2, "each"},
		{codes.ResourceExhausted, 0, "starts"},
	} {
		a, received := streamed(t.Context(), t, grpclimit.Config{}, 3, limits...)
		if a.code != want.code || received != want.received || a.policies() != want.policies {
			t.Errorf("stream %d: %+v, %d messages", i, a, received)
		}
	}
}

// After a denial, RecvMsg repeats its status: it charges nothing, and does not read
// another message.
func TestRecvMsgAfterADenial(t *testing.T) {
	recorder := limittest.Record(newLocal(t, "each", hybridlimit.PerHour(1)))
	intercept, err := grpclimit.StreamServer(grpclimit.Config{}, grpclimit.Limit{Limiter: recorder, Key: fixed("k"), PerMessage: true})
	if err != nil {
		t.Fatal(err)
	}
	ss := &messages{ctx: t.Context(), left: 10}
	err = intercept("service", ss, &grpc.StreamServerInfo{}, func(_ any, ss grpc.ServerStream) error {
		if err := ss.RecvMsg(new(int)); err != nil {
			t.Error(err)
		}
		first := ss.RecvMsg(new(int))
		for range 5 {
			if again := ss.RecvMsg(new(int)); again != first || again == nil {
				t.Errorf("%v, want %v", again, first)
			}
		}
		return nil // the handler ignores the denial
	})
	if err != nil || len(recorder.Calls()) != 2 || ss.left != 8 || len(ss.trailer["grpc-retry-pushback-ms"]) != 1 {
		t.Errorf("%v, %d asked, %d messages left, %v", err, len(recorder.Calls()), ss.left, ss.trailer)
	}
}

// The cost of a message is known only with the message.
func TestCostOfMessages(t *testing.T) {
	recorder := limittest.Record(limittest.AllowAll())
	n := int64(-1)
	limit := grpclimit.Limit{Limiter: recorder, Key: fixed("k"), PerMessage: true, Cost: func(_ context.Context, c grpclimit.Call) int64 {
		if c.Request == nil {
			t.Error("no message")
		}
		n++
		return n
	}}
	a, received := streamed(t.Context(), t, grpclimit.Config{}, 4, limit)
	calls := recorder.Calls()
	if a.err != nil || received != 4 || len(calls) != 3 || calls[0].N != 1 || calls[2].N != 3 {
		t.Errorf("%+v, %d received, %v", a, received, calls)
	}
	n = -3
	if a, received := streamed(t.Context(), t, grpclimit.Config{Logger: quiet}, 4, limit); a.code != codes.InvalidArgument || received != 0 {
		t.Errorf("%+v, %d received", a, received)
	}
	single := unary(t, grpclimit.Config{}, grpclimit.Limit{Limiter: newLocal(t, "a", hybridlimit.PerHour(1)), Key: fixed("k"), PerMessage: true})
	if a, b := single(t.Context()), single(t.Context()); a.code != codes.OK || b.code != codes.ResourceExhausted {
		t.Errorf("unary: %+v, %+v", a, b)
	}
}

// Limits per message that are Joint are asked together.
func TestSeveralLimitsPerMessage(t *testing.T) {
	user, all := newLocal(t, "user", hybridlimit.PerHour(5)), newLocal(t, "all", hybridlimit.PerHour(2))
	limits := []grpclimit.Limit{{Limiter: user, Key: fixed("k"), PerMessage: true}, {Limiter: all, Key: fixed("k"), PerMessage: true}}
	if a, received := streamed(t.Context(), t, grpclimit.Config{}, 5, limits...); a.policies() != "all" || received != 2 {
		t.Errorf("%+v, %d received", a, received)
	}
	if left, err := user.Peek(t.Context(), "k"); err != nil || left.Remaining != 3 {
		t.Errorf("%d left (%v)", left.Remaining, err)
	}
}

// A queue delays the messages of a stream. A client that leaves ends the wait.
func TestQueueOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newLocal(t, "queue", hybridlimit.LeakyQueue(1, time.Second, 5))
		limit := grpclimit.Limit{Limiter: queue, Key: fixed("k"), PerMessage: true}
		start := time.Now()
		if a, received := streamed(t.Context(), t, grpclimit.Config{}, 4, limit); a.err != nil || received != 4 || time.Since(start) != 3*time.Second {
			t.Errorf("%+v, %d received after %v", a, received, time.Since(start))
		}
		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, leave)
		if a, received := streamed(leaving, t, grpclimit.Config{Logger: quiet}, 4, limit); a.code != codes.Canceled || received != 1 {
			t.Errorf("%+v, %d received", a, received)
		}
	})
}
