package spend_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/spend"
)

// BenchmarkSpend compares a call that is settled with a call of Allow, on a hot key. Half of the estimate comes back.
func BenchmarkSpend(b *testing.B) {
	h, err := hybrid.NewHub(redistest.New(b).Client(b), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	for name, limit := range map[string]hybridlimit.Limit{
		"bucket": hybridlimit.PerSecond(1_000_000_000), "window": hybridlimit.FixedWindow(1_000_000_000_000, time.Hour),
	} {
		l, err := h.Limiter(limit, hybrid.Config{Name: name})
		if err != nil {
			b.Fatal(err)
		}
		ctx := context.Background()
		for start := time.Now(); time.Since(start) < 3*time.Second; {
			if _, err := l.AllowN(ctx, "k", 10); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(name+"/Allow", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Allow(ctx, "k")
			}
		})
		b.Run(name+"/Begin, Use and Settle", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, _, err := spend.Begin(ctx, hybridlimit.Ask{Limiter: l, Key: "k", N: 10})
				if err != nil {
					b.Fatal(err)
				}
				s.Use(ctx, 0, 5)
				s.Settle(ctx)
			}
		})
	}
}

// BenchmarkEstimate has a class in use among a thousand.
func BenchmarkEstimate(b *testing.B) {
	e, err := spend.NewEstimator(spend.EstimatorConfig{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		e.Observe(fmt.Sprint(i), int64(i))
	}
	for b.Loop() {
		e.Estimate("7", 100)
	}
}

// BenchmarkPaused has one paused key of a hundred. A denial of it, and a call of another key, look for a pause.
func BenchmarkPaused(b *testing.B) {
	l, err := hybrid.New(redistest.New(b).Client(b), hybridlimit.PerSecond(1000), hybrid.Config{
		Name: "api", Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ctx := context.Background()
	if err := spend.Pause(ctx, l, "k", time.Now().Add(9*time.Minute)); err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		l.Allow(ctx, fmt.Sprint("k", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		if res, err := l.Allow(ctx, "k"); err != nil || res.Allowed {
			b.Fatal(res, err)
		}
	}
}
