//go:build search && !race && unix

package hybrid

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// owingHub adds limiters with keys to a hub. Every owing-th key owes a unit, and the others owe nothing. 0: none owes.
func owingHub(tb testing.TB, h *Hub, limiters, each, owing int) {
	tb.Helper()
	for i := range limiters {
		l, err := h.Limiter(hybridlimit.TokenBucket(1, time.Hour, 100), Config{Name: fmt.Sprint("l", i), MaxKeys: 2 * each})
		if err != nil {
			tb.Fatal(err)
		}
		for k := range each {
			key := fmt.Sprint("k", k)
			at, err := l.terms.Place(key)
			if err != nil {
				tb.Fatal(err)
			}
			e := keys.NewEntry(&l.terms, key)
			e.Link.Tag = uint16(at.Tag)
			e.Plan.Store(at.Plan)
			charge(e)
			if owing == 0 || k%owing != 0 {
				e.Freeze(time.Time{})
				e.Settle(ratesync.Answer{})
			}
			l.terms.Store.Add(e, 0)
		}
	}
}

// BenchmarkShutdown measures the Shutdown of a hub with 1000 limiters of 1000 keys, and the processor time of this process and of
// Redis meanwhile.
func BenchmarkShutdown(b *testing.B) {
	for _, tc := range []struct {
		name  string
		owing int
	}{{"none owes", 0}, {"one in 100 owes", 100}, {"one in 5 owes", 5}} {
		b.Run(tc.name, func(b *testing.B) {
			srv := redistest.New(b)
			for range b.N {
				b.StopTimer()
				h, err := NewHub(srv.Client(b), HubConfig{
					Logger:      slog.New(slog.DiscardHandler),
					SyncTimeout: 5 * time.Second, Breaker: breaker.Config{SlowCall: time.Minute},
				})
				if err != nil {
					b.Fatal(err)
				}
				owingHub(b, h, 1000, 1000, tc.owing)
				if err := h.Ready(b.Context()); err != nil {
					b.Fatal(err)
				}
				before, cpu, theirs := h.Stats(), processor(), serverTime(b, srv)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				b.StartTimer()
				err = h.Shutdown(ctx)
				b.StopTimer()
				cancel()
				if err != nil {
					b.Error(err)
				}
				after := h.Stats()
				b.ReportMetric((processor() - cpu).Seconds(), "cpu-s/op")
				b.ReportMetric(serverTime(b, srv)-theirs, "redis-cpu-s/op")
				b.ReportMetric(float64(after.Messages-before.Messages), "messages/op")
				b.ReportMetric(float64(after.Ops-before.Ops), "ops/op")
			}
		})
	}
}

// processor returns the processor time of this process.
func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime returns the processor time of a Redis, in seconds.
func serverTime(tb testing.TB, srv *redistest.Server) (total float64) {
	tb.Helper()
	info, err := srv.Client(tb).Info(tb.Context(), "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				tb.Fatal(err)
			}
			total += seconds
		}
	}
	return total
}
