// Http is a service with three tiers and several limits: for anonymous callers by address, for free and pro callers by
// API key, for a costly route, and for the whole service. The program brings a stand-in for Redis and needs only Go.
// The limits are in service.go.
//
//	go run ./examples/http          calls itself, prints the results, and ends
//	go run ./examples/http -serve   serves on localhost:8080, for curl
//	go run ./examples/http -redis localhost:6379   uses that Redis
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

func main() {
	addr := flag.String("redis", "", "address of a Redis; empty: a stand-in in this program")
	stay := flag.Bool("serve", false, "serve on localhost:8080")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, os.Stdout, *addr, *stay); err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

// start starts Redis and the service, and then plays or serves.
func start(ctx context.Context, out io.Writer, addr string, stay bool) error {
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
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{})
	if err != nil {
		return err
	}
	defer hub.Shutdown(context.Background())
	handler, err := newService(hub)
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := hub.Ready(ready); err != nil {
		return err
	}
	if stay {
		return serve(ctx, out, handler)
	}
	return play(out, handler)
}

func serve(ctx context.Context, out io.Writer, handler http.Handler) error {
	l, err := net.Listen("tcp", "localhost:8080")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { s.Shutdown(context.WithoutCancel(ctx)) })()
	fmt.Fprintln(out, "curl -i localhost:8080/ ; curl -i -H 'X-Api-Key: free-ann' localhost:8080/report ; Ctrl-C ends")
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// play sends the requests of each caller, and prints the number of served requests and the last response.
func play(out io.Writer, handler http.Handler) error {
	for _, c := range []struct {
		who, path, addr, key string
		requests             int
		send                 func(r *http.Request, i int) // changes the i-th request; may be nil
	}{
		{"anonymous", "/", "192.0.2.1:4711", "", 8, nil},
		{"anonymous, from elsewhere", "/", "198.51.100.1:4711", "", 1, nil},
		{"made-up key, first address", "/", "192.0.2.1:4712", "i-am-pro", 1, nil},
		{"free", "/", "192.0.2.1:4711", "free-ann", 24, nil},
		{"free, the key twice", "/", "192.0.2.1:4711", "free-ann", 4, func(r *http.Request, _ int) { r.Header.Add("X-Api-Key", "free-ann") }},
		{"pro", "/", "192.0.2.1:4711", "pro-bob", 40, nil},
		{"pro, costly route", "/report", "192.0.2.1:4711", "pro-bob", 4, nil},
		{"made-up keys, costly route", "/report", "203.0.113.7:4711", "", 5, func(r *http.Request, i int) { r.Header.Set("X-Api-Key", fmt.Sprint("made-up-", i)) }},
		{"health check", "/healthz", "192.0.2.1:4711", "", 20, nil},
	} {
		served := 0
		var last *answer
		for i := range c.requests {
			r, err := http.NewRequest(http.MethodGet, c.path, nil)
			if err != nil {
				return err
			}
			r.RemoteAddr = c.addr
			if c.key != "" {
				r.Header.Set("X-Api-Key", c.key)
			}
			if c.send != nil {
				c.send(r, i)
			}
			last = &answer{header: http.Header{}, status: http.StatusOK}
			handler.ServeHTTP(last, r)
			if last.status == http.StatusOK {
				served++
			}
		}
		fmt.Fprintf(out, "%-27s %2d of %2d served, the last %d  %s\n", c.who, served, c.requests, last.status, last.header.Get("RateLimit"))
		if last.status != http.StatusOK {
			fmt.Fprintf(out, "%-27s Retry-After %s  %s\n", "", last.header.Get("Retry-After"), strings.TrimSpace(last.body.String()))
		}
	}
	return nil
}

// answer is a response in memory.
type answer struct {
	header http.Header
	status int
	body   strings.Builder
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
