package grpclimit_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// newHybrid returns a limiter that has heard of its fleet.
func newHybrid(t testing.TB) *hybrid.Limiter {
	t.Helper()
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	limiter, err := hybrid.New(rdb, hybridlimit.PerSecond(1_000_000_000), hybrid.Config{Name: "api", Hub: hybrid.HubConfig{Logger: quiet}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limiter.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := limiter.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return limiter
}

// BenchmarkUnaryServer measures the time that a limit adds to a call of an empty
// handler, in nanoseconds: the median of many short rounds that take turns, less the
// median of the handler alone. Each iteration is a round of each subject.
func BenchmarkUnaryServer(b *testing.B) {
	const calls = 1000 // in a round
	limit := hybridlimit.PerSecond(1_000_000_000)
	bare := func() { _, _ = empty(b.Context(), nil) }
	subjects := []*subject{{"handler", bare, nil}}
	for _, l := range []struct {
		name string
		made func() hybridlimit.Limiter // one for each subject, because a second place costs time
	}{
		{"local", func() hybridlimit.Limiter { return newLocal(b, "api", limit) }},
		{"hybrid", func() hybridlimit.Limiter { return newHybrid(b) }},
	} {
		for _, k := range []struct {
			name string
			key  grpclimit.KeyFunc
		}{{"everyone", grpclimit.Everyone()}, {"peer", grpclimit.Peer()}, {"method", grpclimit.Method()}, {"metadata", grpclimit.Metadata("x-api-key", "")}} {
			subjects = append(subjects, &subject{l.name + "/" + k.name, served(b, l.made(), k.key), nil})
		}
	}
	twice := newLocal(b, "api", limit)
	served(b, twice, grpclimit.Everyone())
	subjects = append(subjects, &subject{"local/two-places", served(b, twice, grpclimit.Everyone()), nil})
	for b.Loop() {
		rand.Shuffle(len(subjects), func(i, j int) { subjects[i], subjects[j] = subjects[j], subjects[i] })
		for _, s := range subjects {
			begin := time.Now()
			for range calls {
				s.call()
			}
			s.rounds = append(s.rounds, float64(time.Since(begin).Nanoseconds())/calls)
		}
	}
	b.ReportMetric(0, "ns/op") // of all subjects together, so without meaning
	medians := map[string]float64{}
	for _, s := range subjects {
		slices.Sort(s.rounds)
		medians[s.name] = s.rounds[len(s.rounds)/2]
	}
	for name, median := range medians {
		if name != "handler" {
			b.ReportMetric(median-medians["handler"], "ns:"+name)
		}
	}
}

// subject is a call whose rounds are measured, in ns a call.
type subject struct {
	name   string
	call   func()
	rounds []float64
}

// served returns a function that makes a call through an interceptor to an empty
// handler.
func served(t testing.TB, limiter hybridlimit.Limiter, key grpclimit.KeyFunc) func() {
	t.Helper()
	intercept, err := grpclimit.UnaryServer(grpclimit.Config{}, grpclimit.Limit{Limiter: limiter, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	ctx, info := from(t.Context(), tcp("203.0.113.7"), "x-api-key", "0123456789abcdef"), &grpc.UnaryServerInfo{FullMethod: "/test.Service/Method"}
	return func() {
		if _, err := intercept(ctx, nil, info, empty); err != nil {
			t.Fatal(err)
		}
	}
}

func empty(context.Context, any) (any, error) { return nil, nil }
