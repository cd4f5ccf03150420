package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// acting is a service whose handlers are functions.
type acting struct {
	grpc_testing.UnimplementedTestServiceServer
	unary  func(ctx context.Context) error
	stream func(ss grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error
}

func (a *acting) UnaryCall(ctx context.Context, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{}, a.unary(ctx)
}

func (a *acting) FullDuplexCall(ss grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	return a.stream(ss)
}

// act starts a server with these interceptors, and returns a client of it.
func act(t *testing.T, a *acting, chain []grpc.ServerOption, opts ...grpc.DialOption) grpc_testing.TestServiceClient {
	t.Helper()
	server := grpc.NewServer(chain...)
	grpc_testing.RegisterTestServiceServer(server, a)
	return dial(t, listen(t, server), opts...)
}

// guard returns the interceptors of a Config and limits.
func guard(t *testing.T, cfg grpclimit.Config, limits ...grpclimit.Limit) []grpc.ServerOption {
	t.Helper()
	cfg.Logger = quiet
	one, err := grpclimit.UnaryServer(cfg, limits...)
	if err != nil {
		t.Fatal(err)
	}
	many, err := grpclimit.StreamServer(cfg, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(one), grpc.ChainStreamInterceptor(many)}
}

// said is what a client sees of a call: its code, and the quota in the header and in the trailer.
type said struct {
	code            codes.Code
	header, trailer string
}

// quotaText returns the values of ratelimit and ratelimit-policy. Values of one key are separated by "+", and the keys
// by "|".
func quotaText(md metadata.MD) string {
	left, policy := strings.Join(md["ratelimit"], "+"), strings.Join(md["ratelimit-policy"], "+")
	if left == "" && policy == "" {
		return ""
	}
	return left + "|" + policy
}

func callOnce(t *testing.T, client grpc_testing.TestServiceClient) said {
	t.Helper()
	var header, trailer metadata.MD
	_, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	return said{status.Code(err), quotaText(header), quotaText(trailer)}
}

// talk sends and receives n messages, one after the other.
func talk(t *testing.T, client grpc_testing.TestServiceClient, n int) said {
	t.Helper()
	ss, err := client.FullDuplexCall(t.Context())
	for i := 0; i < n && err == nil; i++ {
		_ = ss.Send(&grpc_testing.StreamingOutputCallRequest{}) // the end of the stream shows in Recv
		_, err = ss.Recv()
	}
	if err == nil {
		_ = ss.CloseSend()
		_, err = ss.Recv()
	}
	if ss == nil {
		t.Fatal(err)
	}
	header, _ := ss.Header()
	if errors.Is(err, errEOF) {
		err = nil
	}
	return said{status.Code(err), quotaText(header), quotaText(ss.Trailer())}
}

// echo answers each message.
func echo(ss grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	for {
		if _, err := ss.Recv(); errors.Is(err, errEOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := ss.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

func fine(context.Context) error { return nil }

// Clients see the quota once: in the header of a success, and in the trailer of a denial or of an error of the handler.
// The unary limit and that of streams are the same here.
func TestQuota(t *testing.T) {
	admit := hybridlimit.Result{Allowed: true, Granted: 1, Limit: 9, Remaining: 8, Source: hybridlimit.SourceRedis, Policy: "api"}
	deny := hybridlimit.Result{Limit: 9, RetryAfter: 1500 * time.Millisecond, Source: hybridlimit.SourceRedis, Policy: "api"}
	never, fallback, timeout, override := deny, admit, deny, admit
	never.RetryAfter = hybridlimit.Never
	fallback.Source, timeout.Source, override.Source = hybridlimit.SourceFallback, hybridlimit.SourceTimeout, hybridlimit.SourceSwitch
	broken := func(context.Context) error { return status.Error(codes.Internal, "broken") }
	both := func(result hybridlimit.Result) []hybridlimit.Result { return []hybridlimit.Result{result, result} }
	for name, tc := range map[string]struct {
		results []hybridlimit.Result // of a limiter that does not describe itself: only the quota is known
		unary   func(context.Context) error
		want    said
	}{
		"admitted":       {both(admit), fine, said{codes.OK, `"api";r=8|"api";q=9`, ""}},
		"denied":         {both(deny), fine, said{codes.ResourceExhausted, "", `"api";r=0;t=2|"api";q=9`}},
		"never admitted": {both(never), fine, said{codes.ResourceExhausted, "", `"api";r=0|"api";q=9`}},
		"by a fallback":  {both(fallback), fine, said{codes.OK, "", ""}},
		"by a switch":    {both(override), fine, said{codes.OK, "", ""}},
		"without Redis":  {both(timeout), fine, said{codes.Unavailable, "", ""}},
		"a broken handler": {both(admit), broken, said{
			codes.Internal, "", `"api";r=8|"api";q=9`,
		}},
	} {
		stream := func(ss grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
			if err := tc.unary(ss.Context()); err != nil {
				return err
			}
			return echo(ss)
		}
		client := act(t, &acting{unary: tc.unary, stream: stream}, guard(t, grpclimit.Config{Quota: true},
			grpclimit.Limit{Limiter: limittest.Play(tc.results...), Key: fixed("k")}))
		if got := callOnce(t, client); got != tc.want {
			t.Errorf("%s, unary: %+v, want %+v", name, got, tc.want)
		}
		if got := talk(t, client, 3); got != tc.want {
			t.Errorf("%s, stream: %+v, want %+v", name, got, tc.want)
		}
	}
}

// Without Config.Quota nothing is sent.
func TestNoQuota(t *testing.T) {
	client := act(t, &acting{unary: fine, stream: echo}, guard(t, grpclimit.Config{},
		grpclimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerHour(2)), Key: fixed("k")}))
	for _, want := range []said{{codes.OK, "", ""}, {codes.OK, "", ""}, {codes.ResourceExhausted, "", ""}} {
		if got := callOnce(t, client); got != want {
			t.Errorf("%+v", got)
		}
	}
}

// Several limits are one value. A denial has the policies of all, and what is left of the one that denied.
func TestQuotaOfSeveralLimits(t *testing.T) {
	client := act(t, &acting{unary: fine, stream: echo}, guard(t, grpclimit.Config{Quota: true},
		grpclimit.Limit{Limiter: newLocal(t, "user", hybridlimit.FixedWindow(5, time.Minute)), Key: fixed("k")},
		grpclimit.Limit{Limiter: newLocal(t, "all", hybridlimit.TokenBucket(1, time.Minute, 1)), Key: fixed("k")}))
	got := callOnce(t, client)
	if !strings.HasPrefix(got.header, `"user";r=4;t=`) || !strings.HasSuffix(got.header, `, "all";r=0;t=60|"user";q=5;w=60, "all";q=1;w=60`) || got.trailer != "" {
		t.Errorf("%+v", got)
	}
	if got := callOnce(t, client); got != (said{codes.ResourceExhausted, "", `"all";r=0;t=60|"user";q=5;w=60, "all";q=1;w=60`}) {
		t.Errorf("%+v", got)
	}
}

// A limit in shadow is secret. A class has the limit of its own.
func TestQuotaOfClassesAndShadow(t *testing.T) {
	class := func(ctx context.Context, _ grpclimit.Call) string {
		md, _ := metadata.FromIncomingContext(ctx)
		return strings.Join(md["class"], "")
	}
	hidden := shadow{newLocal(t, "hidden", hybridlimit.PerHour(5))}
	client := act(t, &acting{unary: fine, stream: echo}, guard(t, grpclimit.Config{Quota: true, Class: class},
		grpclimit.Limit{Limiter: twoClasses(t), Key: fixed("k")}, grpclimit.Limit{Limiter: hidden, Key: fixed("k")}))
	for class, want := range map[string]string{"critical": `"api";r=4;t=14400|"api";q=5;w=18000`, "": `"api";r=2;t=7200|"api";q=3;w=10800`} {
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(t.Context(), "class", class)
		if _, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}, grpc.Header(&header)); err != nil || quotaText(header) != want {
			t.Errorf("%q: %v, %q", class, err, quotaText(header))
		}
	}
}

// shadow is a limiter whose limit is in shadow.
type shadow struct{ hybridlimit.Limiter }

func (shadow) Name() string { return "hidden" }

func (shadow) Policy(string) hybridlimit.Policy {
	return hybridlimit.Policy{Name: "hidden", Limit: hybridlimit.PerHour(5), Shadow: true}
}

// A handler keeps its own metadata. If it sends the header itself, a unary call has the quota in the trailer, and a
// stream in that header.
func TestQuotaBesideMetadataOfTheHandler(t *testing.T) {
	own := metadata.Pairs("own", "1")
	const quota = `"api";r=8|"api";q=9`
	result := hybridlimit.Result{Allowed: true, Granted: 1, Limit: 9, Remaining: 8, Source: hybridlimit.SourceRedis, Policy: "api"}
	for name, tc := range map[string]struct {
		unary  func(context.Context) error
		stream func(grpc.ServerStream) error
		one    said
		many   said
	}{
		"SetHeader": {
			func(ctx context.Context) error { return grpc.SetHeader(ctx, own) },
			func(ss grpc.ServerStream) error { return ss.SetHeader(own) },
			said{codes.OK, quota, ""},
			said{codes.OK, quota, ""},
		},
		"SendHeader": {
			func(ctx context.Context) error { return grpc.SendHeader(ctx, own) },
			func(ss grpc.ServerStream) error { return ss.SendHeader(own) },
			said{codes.OK, "", quota},
			said{codes.OK, quota, ""},
		},
		"SendHeader by the context": {
			func(ctx context.Context) error { return grpc.SendHeader(ctx, own) },
			func(ss grpc.ServerStream) error { return grpc.SendHeader(ss.Context(), own) },
			said{codes.OK, "", quota},
			said{codes.OK, "", quota},
		},
	} {
		client := act(t, &acting{unary: tc.unary, stream: func(ss grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
			if err := tc.stream(ss); err != nil {
				return err
			}
			return echo(ss)
		}}, guard(t, grpclimit.Config{Quota: true}, grpclimit.Limit{Limiter: limittest.Play(result, result, result), Key: fixed("k")}))
		if got := callOnce(t, client); got != tc.one {
			t.Errorf("%s, unary: %+v", name, got)
		}
		if got := talk(t, client, 2); got != tc.many {
			t.Errorf("%s, stream: %+v", name, got)
		}
		ss, err := client.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = ss.CloseSend()
		_, _ = ss.Recv()
		if header, err := ss.Header(); err != nil || len(header["own"]) != 1 {
			t.Errorf("%s: %v, %v", name, header, err)
		}
	}
}
