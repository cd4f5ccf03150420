package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// A server has at most two reports an hour from each user.
func ExampleUnaryServer() {
	limiter, err := local.New(hybridlimit.PerHour(2), local.Config{Name: "reports"})
	if err != nil {
		log.Fatal(err)
	}
	type user struct{} // your authentication stores the user in the context
	limit, err := grpclimit.UnaryServer(grpclimit.Config{}, grpclimit.Limit{
		Limiter: limiter,
		Key: grpclimit.User("", func(ctx context.Context) string {
			name, _ := ctx.Value(user{}).(string)
			return name
		}),
		Required: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	// grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, limit)) calls it like this:
	info := &grpc.UnaryServerInfo{FullMethod: "/demo.Reports/Create"}
	handler := func(context.Context, any) (any, error) { return "report", nil }
	for _, name := range []string{"ann", "ann", "ann", "bob"} {
		_, err := limit(context.WithValue(context.Background(), user{}, name), nil, info, handler)
		fmt.Println(name, status.Code(err))
	}
	// Output:
	// ann OK
	// ann OK
	// ann ResourceExhausted
	// bob OK
}

// A client reads the wait and the policy from a denial.
func ExampleUnaryServer_details() {
	limit, err := grpclimit.UnaryServer(grpclimit.Config{}, grpclimit.Limit{
		Limiter: limittest.DenyAll(1500 * time.Millisecond),
		Key:     grpclimit.Everyone(),
		Name:    "api",
	})
	if err != nil {
		log.Fatal(err)
	}
	_, denial := limit(context.Background(), nil, nil, nil)
	for _, detail := range status.Convert(denial).Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			fmt.Println("retry after", d.GetRetryDelay().AsDuration())
		case *errdetails.QuotaFailure:
			fmt.Println(d.GetViolations()[0].GetQuotaId(), "-", d.GetViolations()[0].GetDescription())
		}
	}
	// Output:
	// retry after 1.5s
	// api - the limit "api" is exceeded
}

// One client for unary calls and streams: what a call learns holds for both.
func ExampleNewClient() {
	client, err := grpclimit.NewClient(grpclimit.ClientConfig{MaxWait: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	options := []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(client.Unary),
		grpc.WithChainStreamInterceptor(client.Stream),
	}
	fmt.Println(len(options), "options for grpc.NewClient")
	// Output:
	// 2 options for grpc.NewClient
}

// A method has a limit of its own. LimitFor gets the key of Method, which
// clientkey.Route also makes.
func ExampleMethod() {
	limits := map[string]hybridlimit.Limit{clientkey.Route("/demo.Reports/Create"): hybridlimit.PerHour(2)}
	limiter, err := local.New(hybridlimit.PerHour(1000), local.Config{Name: "methods", LimitFor: func(key string) hybridlimit.Limit {
		if limit, ok := limits[key]; ok {
			return limit
		}
		return hybridlimit.PerHour(1000)
	}})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := grpclimit.UnaryServer(grpclimit.Config{}, grpclimit.Limit{Limiter: limiter, Key: grpclimit.Method()})
	if err != nil {
		log.Fatal(err)
	}
	handler := func(context.Context, any) (any, error) { return "report", nil }
	for range 3 {
		_, err := limit(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/demo.Reports/Create"}, handler)
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}
