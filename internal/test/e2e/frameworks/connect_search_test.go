//go:build search

package frameworks

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/internal/test/e2e/frameworks/connectlimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

const (
	unaryCall = "/acme.v1.Echo/Once"
	streamOut = "/acme.v1.Echo/Stream"
	streamBi  = "/acme.v1.Echo/Talk"
)

// protocols are the protocols of connect clients.
var protocols = map[string][]connect.ClientOption{
	"connect":       nil,
	"connect, GET":  {connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)},
	"connect, JSON": {connect.WithProtoJSON()},
	"grpc":          {connect.WithGRPC()},
	"grpc-web":      {connect.WithGRPCWeb()},
}

// rpc is a service of connect behind limits.
type rpc struct {
	url    string
	client *http.Client
	ran    int // calls of handlers; the calls of a test come one after the other
}

type text = wrapperspb.StringValue

// startConnect starts a service with a limit on each call.
func startConnect(t *testing.T, cfg httplimit.Config, l hybridlimit.Limiter) *rpc {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	mw, err := httplimit.New(cfg, httplimit.Limit{Limiter: l, Key: httplimit.Pattern(nil)})
	if err != nil {
		t.Fatal(err)
	}
	s := &rpc{}
	mux := http.NewServeMux()
	mux.Handle(unaryCall, mw(connect.NewUnaryHandler(unaryCall, func(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
		s.ran++
		return connect.NewResponse(req.Msg), nil
	}, connect.WithIdempotency(connect.IdempotencyNoSideEffects))))
	mux.Handle(streamOut, mw(connect.NewServerStreamHandler(streamOut, func(_ context.Context, req *connect.Request[text], out *connect.ServerStream[text]) error {
		s.ran++
		return out.Send(req.Msg)
	})))
	mux.Handle(streamBi, mw(connect.NewBidiStreamHandler(streamBi, func(_ context.Context, both *connect.BidiStream[text, text]) error {
		s.ran++
		msg, err := both.Receive()
		if err != nil {
			return err
		}
		return both.Send(msg)
	})))

	h2c := new(http.Protocols)
	h2c.SetUnencryptedHTTP2(true)
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = h2c
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{Protocols: h2c}
	t.Cleanup(transport.CloseIdleConnections)
	s.url, s.client = server.URL, &http.Client{Transport: transport}
	return s
}

// calls has a call of each kind. It returns the text of the answer.
var calls = map[string]func(ctx context.Context, s *rpc, opts []connect.ClientOption) (string, error){
	"unary": func(ctx context.Context, s *rpc, opts []connect.ClientOption) (string, error) {
		c := connect.NewClient[text, text](s.client, s.url+unaryCall, opts...)
		resp, err := c.CallUnary(ctx, connect.NewRequest(wrapperspb.String("hello")))
		if err != nil {
			return "", err
		}
		return resp.Msg.GetValue(), nil
	},
	"server stream": func(ctx context.Context, s *rpc, opts []connect.ClientOption) (string, error) {
		c := connect.NewClient[text, text](s.client, s.url+streamOut, opts...)
		in, err := c.CallServerStream(ctx, connect.NewRequest(wrapperspb.String("hello")))
		if err != nil {
			return "", err
		}
		defer in.Close()
		if !in.Receive() {
			return "", in.Err()
		}
		return in.Msg().GetValue(), nil
	},
	"bidi stream": func(ctx context.Context, s *rpc, opts []connect.ClientOption) (string, error) {
		both := connect.NewClient[text, text](s.client, s.url+streamBi, opts...).CallBidiStream(ctx)
		defer both.CloseResponse()
		// A refused stream may already be closed: the reason comes with Receive.
		_ = both.Send(wrapperspb.String("hello"))
		_ = both.CloseRequest()
		msg, err := both.Receive()
		if err != nil {
			return "", err
		}
		return msg.GetValue(), nil
	},
}

// eachCall runs a test with every protocol and kind of call.
func eachCall(t *testing.T, test func(t *testing.T, call func(s *rpc) (string, error))) {
	for protocol, opts := range protocols {
		for kind, call := range calls {
			t.Run(protocol+"/"+kind, func(t *testing.T) {
				t.Parallel()
				test(t, func(s *rpc) (string, error) { return call(t.Context(), s, opts) })
			})
		}
	}
}

// TestConnectWithoutAnswersOfItsOwn checks the reason for ConnectDenied: the
// problem document of a 429 reaches clients as unavailable, a code that they retry.
func TestConnectWithoutAnswersOfItsOwn(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(s *rpc) (string, error)) {
		s := startConnect(t, httplimit.Config{}, limittest.DenyAll(1500*time.Millisecond))
		if _, err := call(s); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%v, want unavailable", err)
		}
	})
}

func TestConnectDenied(t *testing.T) {
	cfg := httplimit.Config{Denied: connectlimit.ConnectDenied()}
	eachCall(t, func(t *testing.T, call func(s *rpc) (string, error)) {
		recorder := limittest.Record(limittest.AllowAll())
		s := startConnect(t, cfg, recorder)
		if got, err := call(s); err != nil || got != "hello" || s.ran != 1 {
			t.Errorf("admitted: %q, %v, %d calls", got, err, s.ran)
		}
		if keys := recorder.Keys(); len(keys) != 1 || keys[0] != "route:"+unaryCall && keys[0] != "route:"+streamOut && keys[0] != "route:"+streamBi {
			t.Errorf("keys: %q", keys)
		}

		s = startConnect(t, cfg, limittest.DenyAll(1500*time.Millisecond))
		_, err := call(s)
		var e *connect.Error
		if !errors.As(err, &e) || e.Code() != connect.CodeResourceExhausted || e.Message() != "rate limit exceeded" || s.ran != 0 {
			t.Fatalf("denied: %v, %d calls", err, s.ran)
		}
		if got := e.Meta().Get("Retry-After"); got != "2" {
			t.Errorf("Retry-After: %q of %v", got, e.Meta())
		}
		if len(e.Details()) != 1 {
			t.Fatalf("%d details", len(e.Details()))
		}
		detail, err := e.Details()[0].Value()
		if info, ok := detail.(*errdetails.RetryInfo); err != nil || !ok || info.GetRetryDelay().AsDuration() != 2*time.Second {
			t.Errorf("%v, %v", detail, err)
		}

		s = startConnect(t, cfg, failing{})
		if _, err := call(s); connect.CodeOf(err) != connect.CodeUnavailable || s.ran != 0 {
			t.Errorf("no decision: %v, %d calls", err, s.ran)
		}

		s = startConnect(t, cfg, limittest.DenyAll(hybridlimit.Never))
		if _, err := call(s); !errors.As(err, &e) || e.Code() != connect.CodeResourceExhausted || len(e.Details()) != 0 {
			t.Errorf("never: %v", err)
		}
	})
}

// TestConnectDeniedForOthers checks that other requests get a problem document.
func TestConnectDeniedForOthers(t *testing.T) {
	mw, err := httplimit.New(httplimit.Config{Denied: connectlimit.ConnectDenied()}, httplimit.Limit{Limiter: limittest.DenyAll(time.Second), Key: httplimit.Everyone()})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	mw(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("form")))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
