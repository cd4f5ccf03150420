// Grpc is a gRPC server with limits per client address and for one costly method, and three clients: one that is
// denied, one that waits as the server asks, and one that leaves the retries to gRPC. The program brings a stand-in for
// Redis and needs only Go. The limits are in server.go.
//
//	go run .                         calls itself, prints the results, and ends
//	go run . -redis localhost:6379   uses that Redis
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

func main() {
	addr := flag.String("redis", "", "address of a Redis; empty: a stand-in in this program")
	flag.Parse()
	if err := start(context.Background(), os.Stdout, *addr); err != nil {
		fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

// start starts Redis and the server, and then plays the clients.
func start(ctx context.Context, out io.Writer, addr string) error {
	if addr == "" {
		m, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer m.Close()
		m.ClockTTL(true)
		addr = m.Addr()
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)}) // so that only the results are printed
	if err != nil {
		return err
	}
	defer hub.Shutdown(context.WithoutCancel(ctx))
	server, err := newServer(hub)
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := hub.Ready(ready); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	defer server.Stop()
	go server.Serve(listener)
	return play(ctx, out, listener.Addr().String())
}

// play shows the three clients, one after the other.
func play(ctx context.Context, out io.Writer, addr string) error {
	for _, method := range []string{forecast, now} {
		served, denial, err := untilDenied(ctx, addr, method)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d calls served, then %s\n", method, served, explain(denial))
	}
	wait, err := grpclimit.UnaryClient(grpclimit.ClientConfig{})
	if err != nil {
		return err
	}
	const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "1s",
		"backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	for _, client := range []struct {
		name   string
		option grpc.DialOption
	}{
		{"With grpclimit.UnaryClient", grpc.WithUnaryInterceptor(wait)},
		{"With the retries of gRPC", grpc.WithDefaultServiceConfig(retries)},
	} {
		begin := time.Now()
		if err := serveAll(ctx, addr, 6, client.option); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: 6 of 6 forecasts served, in %.1f s\n", client.name, time.Since(begin).Seconds())
	}
	return nil
}

// untilDenied calls a method until a limit denies.
func untilDenied(ctx context.Context, addr, method string) (served int, denial, err error) {
	cc, err := dial(addr)
	if err != nil {
		return 0, nil, err
	}
	defer cc.Close()
	for ; served < 1000; served++ {
		if denial := cc.Invoke(ctx, method, &wrapperspb.StringValue{}, &wrapperspb.StringValue{}); denial != nil {
			return served, denial, nil
		}
	}
	return served, nil, errors.New("no limit denies")
}

// explain reads the details of a denial, as a client does.
func explain(err error) string {
	st := status.Convert(err)
	text := st.Code().String()
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.QuotaFailure:
			text += ", " + d.GetViolations()[0].GetDescription()
		case *errdetails.RetryInfo:
			text += fmt.Sprintf(", retry after %.1f s", d.GetRetryDelay().AsDuration().Seconds())
		}
	}
	return text
}

// serveAll calls the costly method n times through a client that waits.
func serveAll(ctx context.Context, addr string, n int, option grpc.DialOption) error {
	cc, err := dial(addr, option)
	if err != nil {
		return err
	}
	defer cc.Close()
	for range n {
		if err := cc.Invoke(ctx, forecast, &wrapperspb.StringValue{}, &wrapperspb.StringValue{}); err != nil {
			return err
		}
	}
	return nil
}

func dial(addr string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}
