package provider

import (
	"flag"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
)

var windows = flag.Int("windows", 3, "windows of the provider that are measured")

// The provider, the stranger and the fleet.
const (
	limit     = 6000 // requests in a period
	period    = time.Minute
	processes = 20
	stranger  = 0.3 // of the limit
	demand    = 1.3 // of the limit
	burst     = 100 // of the fleet's bucket: a second
	maxWait   = 3 * time.Second
)

// A kind is a way in which the fleet's clients keep to the limit.
type kind struct {
	name   string
	shared func(b *redistest.Bubble, t *testing.T) (*httplimit.Share, func()) // of one process
	must   bool                                                               // reaches the goal
}

var kinds = []kind{
	{"Shared, Window", func(b *redistest.Bubble, t *testing.T) (*httplimit.Share, func()) {
		l := fleetLimiter(b, t)
		return &httplimit.Share{Limiter: l, Window: true}, func() { l.Close() }
	}, true},
	{"Shared, without Window", func(b *redistest.Bubble, t *testing.T) (*httplimit.Share, func()) {
		l := fleetLimiter(b, t)
		return &httplimit.Share{Limiter: l}, func() { l.Close() }
	}, false},
	{"static share: 1/20 of the limit", func(_ *redistest.Bubble, t *testing.T) (*httplimit.Share, func()) {
		l := staticLimiter(t, limit/processes)
		return &httplimit.Share{Limiter: deaf{l}}, func() { l.Close() }
	}, false},
	{"static share: 1/20 of the limit without the stranger", func(_ *redistest.Bubble, t *testing.T) (*httplimit.Share, func()) {
		l := staticLimiter(t, int64(limit*(1-stranger))/processes)
		return &httplimit.Share{Limiter: deaf{l}}, func() { l.Close() }
	}, false},
	{"backoff alone", nil, false},
}

// deaf hides the methods that hear of the provider.
type deaf struct{ hybridlimit.Limiter }

func fleetLimiter(b *redistest.Bubble, t *testing.T) *hybrid.Limiter {
	l, err := hybrid.New(b.Client(nil), hybridlimit.TokenBucket(limit, period, burst), hybrid.Config{
		Name: "provider", MaxWait: time.Second, Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func staticLimiter(t *testing.T, rate int64) *local.Limiter {
	l, err := local.New(hybridlimit.TokenBucket(rate, period, max(1, burst/processes)), local.Config{Name: "provider"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestProvider measures each kind beside a stranger who calls evenly, and one who calls in blocks of ten seconds. The
// fleet of the first kind is refused seldom, and uses what is free.
func TestProvider(t *testing.T) {
	for _, of := range []struct {
		name           string
		bucket, blocks bool
	}{
		{"windows", false, false},
		{"windows, stranger in blocks", false, true},
		{"bucket", true, false},
		{"bucket, stranger in blocks", true, true},
	} {
		for _, k := range kinds {
			if of.bucket && k.must { // it has no windows
				continue
			}
			t.Run(of.name+": "+k.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					refused, used, sent := run(t, k, of.bucket, of.blocks)
					t.Logf("refused %.2f %% of %d, used %.1f %% of what is free", 100*refused, sent, 100*used)
					if k.must && (refused > 0.005 || used < 0.95) {
						t.Errorf("%.2f %% are refused, want 0.5; %.1f %% are used, want 95", 100*refused, 100*used)
					}
				})
			})
		}
	}
}

// run runs a fleet. It returns the refused part of its requests, the used part of what the stranger left, and the
// number of requests, in whole windows without the first.
func run(t *testing.T, k kind, bucket, blocks bool) (refused, used float64, sent int64) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := redistest.NewBubble(t)
	s := newServer(limit, period, bucket, rng)
	var clients []http.RoundTripper
	for range processes {
		cfg := httplimit.TransportConfig{Base: s, MaxWait: maxWait, Logger: slog.New(slog.DiscardHandler)}
		if k.shared != nil {
			share, end := k.shared(b, t)
			defer end()
			cfg.Shared = []httplimit.Share{*share}
		}
		tr, err := httplimit.NewTransport(cfg)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, tr)
		time.Sleep(137 * time.Millisecond)
	}
	time.Sleep(4 * time.Second)
	first := int64(time.Since(s.began)/period) + 2
	until := s.began.Add(time.Duration(first+int64(*windows)) * period)

	var all sync.WaitGroup
	all.Go(func() { strange(s, blocks, until, rand.New(rand.NewPCG(3, 4))) })
	for i, c := range clients {
		all.Go(func() { load(t, c, until, rand.New(rand.NewPCG(5, uint64(i))), &all) })
	}
	all.Wait()
	var served, free int64
	var no int64
	for n := first; n < first+int64(*windows); n++ {
		w := s.windows[n]
		served, no, free = served+w.served, no+w.refused, free+limit-w.stranger
		t.Logf("window %d: %d served, %d refused, %d of the stranger", n, w.served, w.refused, w.stranger)
	}
	return float64(no) / float64(served+no), float64(served) / float64(free), served + no
}

// load sends the requests of a process at random times. A request waits in a goroutine of its own.
func load(t *testing.T, c http.RoundTripper, until time.Time, rng *rand.Rand, all *sync.WaitGroup) {
	each := float64(period) / (limit * demand / processes)
	for {
		time.Sleep(time.Duration(rng.ExpFloat64() * each))
		if !time.Now().Before(until) {
			return
		}
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := c.RoundTrip(r); err == nil { // the others were not sent
				resp.Body.Close()
			}
		})
	}
}

// strange sends the requests of the stranger, who tries again after a refusal only with the next one.
func strange(s *server, blocks bool, until time.Time, rng *rand.Rand) {
	each := float64(period) / (limit * stranger)
	for time.Now().Before(until) {
		if blocks && time.Since(s.began)%(20*time.Second) < 10*time.Second {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		wait := rng.ExpFloat64() * each
		if blocks {
			wait /= 2
		}
		time.Sleep(time.Duration(wait))
		s.count(false)
	}
}
