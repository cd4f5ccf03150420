// Llm is three replicas of a service that call a provider of a language model, beside a stranger who uses the same
// account. The replicas take tokens from one limit before they call, hear from each response what the provider has
// left, and settle what each call used. The program brings stand-ins for Redis and for the provider, and needs only Go.
// client.go has the interesting part.
//
//	go run ./examples/llm
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/spend"
)

func main() {
	if err := start(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "llm:", err)
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
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	_, err = play(ctx, out, rdb)
	return err
}

// The provider's limit is 40 000 tokens in 2 seconds. A stranger uses 30 % of it.
const (
	limit    = 40_000
	period   = 2 * time.Second
	stranger = 0.3
	replicas = 3
	workers  = 8 // of each replica
	windows  = 3 // that are shown
)

// play calls the provider for some windows, and shows what each has counted. It returns them.
func play(ctx context.Context, out io.Writer, rdb redis.UniversalClient) (counted []window, err error) {
	var limiters []*hybrid.Limiter
	for range replicas {
		// A burst of a tenth: the provider's window may begin at any time.
		tokens, err := hybrid.New(rdb, hybridlimit.TokenBucket(limit, period, limit/10), hybrid.Config{Name: "tokens"})
		if err != nil {
			return nil, err
		}
		defer tokens.Shutdown(ctx)
		limiters = append(limiters, tokens)
	}
	provider := newProvider(limit, period)
	var clients []*http.Client
	for _, tokens := range limiters {
		if err := tokens.Ready(ctx); err != nil {
			return nil, err
		}
		costs, err := spend.NewEstimator(spend.EstimatorConfig{})
		if err != nil {
			return nil, err
		}
		client, err := newClient(tokens, costs, provider)
		if err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}

	first := provider.number() + 1
	until := provider.began.Add(time.Duration(first+windows) * period)
	fmt.Fprintf(out, "%d replicas call for %v\n", replicas, time.Until(until).Round(time.Second))
	var all sync.WaitGroup
	all.Go(func() { provider.strange(stranger, until) })
	for _, client := range clients {
		for range workers {
			all.Go(func() {
				for time.Now().Before(until) {
					if err := complete(ctx, client); err != nil {
						return // the provider or the limit has nothing for longer than the client waits
					}
				}
			})
		}
	}
	all.Wait()
	for n := first; n < first+windows; n++ {
		w := *provider.at(n)
		counted = append(counted, w)
		fmt.Fprintf(out, "a window of %d tokens: the fleet used %d, the stranger %d; %d calls served, %d refused\n",
			limit, w.fleet, w.stranger, w.served, w.refused)
	}
	return counted, nil
}

// complete sends one request, and reads the whole response.
func complete(ctx context.Context, client *http.Client) error {
	body, err := json.Marshal(request{Model: "large", MaxTokens: 1000})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://llm.example.com/v1/complete", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // settles the tokens
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
