package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// service is the test service of gRPC. It counts the calls that it serves.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	calls atomic.Int64
}

func (s *service) UnaryCall(_ context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	s.calls.Add(1)
	return &grpc_testing.SimpleResponse{Payload: &grpc_testing.Payload{Body: make([]byte, r.GetResponseSize())}}, nil
}

func (s *service) StreamingOutputCall(_ *grpc_testing.StreamingOutputCallRequest, ss grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
	s.calls.Add(1)
	for range 3 {
		if err := ss.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) StreamingInputCall(ss grpc.ClientStreamingServer[grpc_testing.StreamingInputCallRequest, grpc_testing.StreamingInputCallResponse]) error {
	s.calls.Add(1)
	n := int32(0)
	for {
		if _, err := ss.Recv(); errors.Is(err, io.EOF) {
			return ss.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: n})
		} else if err != nil {
			return err
		}
		n++
	}
}

func (s *service) FullDuplexCall(ss grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	s.calls.Add(1)
	for {
		if _, err := ss.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := ss.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// serve starts a server on the loopback with these limits, and returns its service
// and its address.
func serve(t *testing.T, cfg grpclimit.Config, limits ...grpclimit.Limit) (*service, string) {
	t.Helper()
	one, err := grpclimit.UnaryServer(cfg, limits...)
	if err != nil {
		t.Fatal(err)
	}
	many, err := grpclimit.StreamServer(cfg, limits...)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(one), grpc.StreamInterceptor(many),
		grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error { return status.Error(codes.Unimplemented, "unknown") }))
	made := &service{}
	grpc_testing.RegisterTestServiceServer(server, made)
	return made, listen(t, server)
}

// listen starts a server on the loopback, and returns its address.
func listen(t *testing.T, server *grpc.Server) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return listener.Addr().String()
}

func dial(t *testing.T, addr string, opts ...grpc.DialOption) grpc_testing.TestServiceClient {
	t.Helper()
	return grpc_testing.NewTestServiceClient(connect(t, addr, opts...))
}

func connect(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// retries is a service config whose retries begin after 1 ms.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s",
	"backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

// A client sees the code, the details and the trailer of a denial, in unary calls
// and in streams of all kinds.
func TestClientsSeeDenials(t *testing.T) {
	limiter := newLocal(t, "api", hybridlimit.PerHour(1))
	served, addr := serve(t, grpclimit.Config{}, grpclimit.Limit{Limiter: limiter, Key: grpclimit.Join(grpclimit.Peer(), grpclimit.Method())})
	client := dial(t, addr)
	for name, send := range map[string]func(opts ...grpc.CallOption) error{
		"unary": func(opts ...grpc.CallOption) error {
			_, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}, opts...)
			return err
		},
		"server stream": func(opts ...grpc.CallOption) error {
			ss, err := client.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{}, opts...)
			for n := 0; err == nil; n++ {
				if _, err = ss.Recv(); errors.Is(err, io.EOF) && n == 3 {
					return nil
				}
			}
			return err
		},
		"client stream": func(opts ...grpc.CallOption) error {
			ss, err := client.StreamingInputCall(t.Context(), opts...)
			if err != nil {
				return err
			}
			for range 3 {
				_ = ss.Send(&grpc_testing.StreamingInputCallRequest{}) // the end of a denied stream shows in CloseAndRecv
			}
			res, err := ss.CloseAndRecv()
			if err == nil && res.GetAggregatedPayloadSize() != 3 {
				t.Errorf("%d messages", res.GetAggregatedPayloadSize())
			}
			return err
		},
		"bidi stream": func(opts ...grpc.CallOption) error {
			ss, err := client.FullDuplexCall(t.Context(), opts...)
			if err != nil {
				return err
			}
			for range 3 {
				_ = ss.Send(&grpc_testing.StreamingOutputCallRequest{})
				if _, err := ss.Recv(); err != nil {
					return err
				}
			}
			_ = ss.CloseSend()
			if _, err := ss.Recv(); !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		},
	} {
		before := served.calls.Load()
		if err := send(); err != nil {
			t.Errorf("%s: the first: %v", name, err)
		}
		var trailer metadata.MD
		a := answerOf(send(grpc.Trailer(&trailer)), nil, false)
		if a.code != codes.ResourceExhausted || a.policies() != "api" || a.retry.GetRetryDelay().AsDuration() < 59*time.Minute || served.calls.Load() != before+1 {
			t.Errorf("%s: %+v, %d served", name, a, served.calls.Load()-before)
		}
		if name == "unary" && len(trailer["grpc-retry-pushback-ms"]) != 1 {
			t.Errorf("%s: %v", name, trailer)
		}
	}
}

// gRPC's own retries obey the pushback: they wait for it, and stop at -1.
func TestRetriesOfGRPC(t *testing.T) {
	const wait = 300 * time.Millisecond
	deny := hybridlimit.Result{RetryAfter: wait, Source: hybridlimit.SourceRedis, Policy: "api"}
	admit := hybridlimit.Result{Allowed: true, Granted: 1, Source: hybridlimit.SourceRedis}
	never := hybridlimit.Result{RetryAfter: hybridlimit.Never, Source: hybridlimit.SourceStatic}
	timeout := deny
	timeout.Source = hybridlimit.SourceTimeout
	for name, tc := range map[string]struct {
		answers  []hybridlimit.Result
		deadline time.Duration
		want     codes.Code
		asked    int
		least    time.Duration
	}{
		"a wait":                     {[]hybridlimit.Result{deny, admit}, time.Minute, codes.OK, 2, wait},
		"two waits":                  {[]hybridlimit.Result{deny, deny, admit}, time.Minute, codes.OK, 3, 2 * wait},
		"a limiter without Redis":    {[]hybridlimit.Result{timeout, admit}, time.Minute, codes.OK, 2, wait},
		"never":                      {[]hybridlimit.Result{never, admit}, time.Minute, codes.ResourceExhausted, 1, 0},
		"a wait beyond the deadline": {[]hybridlimit.Result{{RetryAfter: time.Hour, Source: hybridlimit.SourceRedis}, admit}, time.Minute, codes.ResourceExhausted, 1, 0},
	} {
		recorder := limittest.Record(limittest.Play(tc.answers...))
		_, addr := serve(t, grpclimit.Config{}, grpclimit.Limit{Limiter: recorder, Key: grpclimit.Everyone()})
		client := dial(t, addr, grpc.WithDefaultServiceConfig(retries))
		ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
		start := time.Now()
		_, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
		cancel()
		if status.Code(err) != tc.want || len(recorder.Calls()) != tc.asked || time.Since(start) < tc.least {
			t.Errorf("%s: %v, %d asked, after %v", name, err, len(recorder.Calls()), time.Since(start))
		}
	}
}

// The client's interceptors wait for the server's limit, for unary calls and streams
// of one connection.
func TestClientAgainstServer(t *testing.T) {
	const wait = 200 * time.Millisecond
	deny := hybridlimit.Result{RetryAfter: wait, Source: hybridlimit.SourceRedis, Policy: "api"}
	admit := hybridlimit.Result{Allowed: true, Granted: 1, Source: hybridlimit.SourceRedis}
	served, addr := serve(t, grpclimit.Config{}, grpclimit.Limit{Limiter: limittest.Play(deny, admit, deny, admit), Key: grpclimit.Everyone()})
	c, err := grpclimit.NewClient(grpclimit.ClientConfig{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	client := dial(t, addr, grpc.WithUnaryInterceptor(c.Unary), grpc.WithStreamInterceptor(c.Stream))
	start := time.Now()
	if _, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); err != nil || time.Since(start) < wait || served.calls.Load() != 1 {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	ss, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ss.Recv(); status.Code(err) != codes.ResourceExhausted { // a stream is not retried
		t.Error(err)
	}
	start = time.Now()
	if _, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); err != nil || time.Since(start) < wait/2 {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// A ResourceExhausted of gRPC itself has no details: the client neither waits nor
// retries.
func TestMessagesThatAreTooLarge(t *testing.T) {
	served, addr := serve(t, grpclimit.Config{}, grpclimit.Limit{Limiter: limittest.AllowAll(), Key: grpclimit.Peer()})
	c, err := grpclimit.NewClient(grpclimit.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	client := dial(t, addr, grpc.WithUnaryInterceptor(c.Unary), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1000)))
	_, err = client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{ResponseSize: 10_000})
	if a := answerOf(err, nil, false); a.code != codes.ResourceExhausted || a.retry != nil || a.quota != nil || served.calls.Load() != 1 {
		t.Errorf("%+v, %d served", a, served.calls.Load())
	}
}

// Made-up methods share one key, metadata of any size is a key, and a service with a
// huge number of methods cannot be invented.
func TestMadeUpMethods(t *testing.T) {
	recorder := limittest.Record(limittest.AllowAll())
	_, addr := serve(t, grpclimit.Config{}, grpclimit.Limit{Limiter: recorder, Key: grpclimit.Join(grpclimit.Method(), grpclimit.Metadata("x-api-key", ""))})
	cc := connect(t, addr)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", strings.Repeat("x", 100_000))
	for i := range 20 {
		err := cc.Invoke(ctx, fmt.Sprintf("/made.Up/Method%d", i), &grpc_testing.Empty{}, &grpc_testing.Empty{})
		if status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
	}
	keys := map[string]bool{}
	for _, key := range recorder.Keys() {
		keys[key] = true
	}
	if len(keys) != 1 || !strings.HasPrefix(recorder.Keys()[0], "route:unmatched|apikey:") || len(recorder.Calls()) != 20 {
		t.Errorf("%v, %d asked", recorder.Keys(), len(recorder.Calls()))
	}
}
