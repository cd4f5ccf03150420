// Worker shapes outbound calls: several workers share the limit of a partner's API, and wait for their turn instead of
// being refused. The program brings a stand-in for Redis and for the partner, and needs only Go. worker.go has the
// interesting part.
//
//	go run ./examples/worker
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// start starts a Redis and runs play.
func start(ctx context.Context, out io.Writer) error {
	m, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer m.Close()
	m.ClockTTL(true)
	return play(ctx, out, func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: m.Addr()}) })
}

const (
	processes = 3
	workers   = 4  // in each process
	jobs      = 20 // of each process
)

// The partner allows 20 calls a second, and a burst of 10.
var (
	allowed = hybridlimit.TokenBucket(20, time.Second, 10)
	// pace is our own limit: evenly spaced calls, with room for all waiting callers.
	pace = hybridlimit.LeakyQueue(20, time.Second, 1000)
)

// play runs the workers without and with their limit, and prints the calls that
// the partner served and refused. Every process has its own client.
func play(ctx context.Context, out io.Writer, connect func() redis.UniversalClient) error {
	for _, shaped := range []bool{false, true} {
		api, err := newPartner()
		if err != nil {
			return err
		}
		start := time.Now()
		if err := runFleet(ctx, connect, api, shaped); err != nil {
			return err
		}
		how := "without a limit"
		if shaped {
			how = "shaped by Wait"
		}
		fmt.Fprintf(out, "%-17s %2d calls served, %2d refused, in %.1f s\n", how, api.served.Load(), api.refused.Load(), time.Since(start).Seconds())
	}
	return nil
}

// partner is the API of another company.
type partner struct {
	handler         http.Handler
	served, refused atomic.Int64
}

func newPartner() (*partner, error) {
	limiter, err := local.New(allowed, local.Config{Name: "partner"})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: limiter, Key: httplimit.Everyone()})
	if err != nil {
		return nil, err
	}
	p := &partner{}
	p.handler = limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	return p, nil
}

// Call is a request to the partner. A real program uses an http.Client here.
func (p *partner) Call(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/jobs", nil)
	if err != nil {
		return err
	}
	w := &answer{header: http.Header{}}
	if p.handler.ServeHTTP(w, r); w.status == http.StatusTooManyRequests {
		p.refused.Add(1)
	} else {
		p.served.Add(1)
	}
	return nil
}

// answer keeps the status of a response.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return len(b), nil }
