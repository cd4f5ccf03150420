package grpclimit_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
)

// Many streams at once under one limit: exactly the limit's messages are received.
func TestConcurrentStreams(t *testing.T) {
	intercept, err := grpclimit.StreamServer(grpclimit.Config{}, grpclimit.Limit{Limiter: newLocal(t, "each", hybridlimit.PerHour(500)), Key: fixed("k"), PerMessage: true})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var received, denied atomic.Int64
	for range 100 {
		wg.Go(func() {
			err := intercept("service", &messages{ctx: t.Context(), left: 10}, &grpc.StreamServerInfo{}, func(_ any, ss grpc.ServerStream) error {
				for range 10 {
					if err := ss.RecvMsg(new(int)); err != nil {
						return err
					}
					received.Add(1)
				}
				return nil
			})
			if err != nil {
				denied.Add(1)
			}
		})
	}
	wg.Wait()
	if received.Load() != 500 || denied.Load() < 50 {
		t.Errorf("%d received, %d streams denied", received.Load(), denied.Load())
	}
}

// Clients of many messages share a limit per message; each stream ends with the
// denial, and the service has served exactly the limit's messages.
func TestMessagesOfRealStreams(t *testing.T) {
	_, addr := serve(t, grpclimit.Config{}, grpclimit.Limit{Limiter: newLocal(t, "messages", hybridlimit.PerHour(50)), Key: grpclimit.Peer(), PerMessage: true})
	client := dial(t, addr)
	var wg sync.WaitGroup
	var echoed, denied atomic.Int64
	for range 10 {
		wg.Go(func() {
			ss, err := client.FullDuplexCall(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for range 20 {
				_ = ss.Send(&grpc_testing.StreamingOutputCallRequest{})
				if _, err := ss.Recv(); err != nil {
					if a := answerOf(err, nil, false); a.code == codes.ResourceExhausted && a.policies() == "messages" {
						denied.Add(1)
					}
					return
				}
				echoed.Add(1)
			}
		})
	}
	wg.Wait()
	if echoed.Load() != 50 || denied.Load() < 8 {
		t.Errorf("%d echoed, %d streams denied", echoed.Load(), denied.Load())
	}
}

// Deadlines and cancellation reach a call that waits in a queue of the server.
func TestCallsThatEndInAQueue(t *testing.T) {
	queue := newLocal(t, "queue", hybridlimit.LeakyQueue(1, time.Hour, 1000))
	served, addr := serve(t, grpclimit.Config{Logger: quiet}, grpclimit.Limit{Limiter: queue, Key: grpclimit.Everyone()})
	client := dial(t, addr)
	if _, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	start := time.Now()
	if _, err := client.UnaryCall(soon, &grpc_testing.SimpleRequest{}); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "grpclimit") {
		t.Errorf("%v after %v", err, time.Since(start)) // the server's answer, before the deadline
	}
	leaving, leave := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(leaving, &grpc_testing.SimpleRequest{})
		result <- err
	}()
	for { // until the call waits in the queue
		if res, err := queue.Peek(t.Context(), "*"); err != nil || res.Remaining < 999 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	leave()
	if err := <-result; status.Code(err) != codes.Canceled || served.calls.Load() != 1 {
		t.Errorf("%v, %d served", err, served.calls.Load())
	}
}
