//go:build search

package region_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/region"
)

// TestRegionsOnServers plays a partition, a killed and a hung server on three redis-servers with 80 ms between regions.
// There is no excess, and a partition loses no more units than were under way.
func TestRegionsOnServers(t *testing.T) {
	limit, names := hybridlimit.PerSecond(900), []string{"a", "b", "c"}
	var servers []*redistest.Server
	var far []*redistest.Proxy // of all ways from and to a
	var ls []*region.Limiter
	for range names {
		servers = append(servers, redistest.New(t))
	}
	for i, here := range names {
		for range 2 {
			hub, err := hybrid.NewHub(servers[i].Client(t), hybrid.HubConfig{Logger: quiet, FleetSize: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { hub.Close() })
			others := map[string]redis.UniversalClient{}
			for j, name := range names {
				if j == i {
					continue
				}
				p := redistest.NewProxy(t, servers[j].Addr())
				p.Latency(farAway, farAway)
				if i == 0 || j == 0 {
					far = append(far, p)
				}
				others[name] = p.Client(t)
			}
			l, err := region.New(limit, region.Config{Name: "api", Here: here, Hub: hub, Others: others})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			ls = append(ls, l)
		}
	}
	var mu sync.Mutex
	m := meter.NewBucket(algo.BucketOf(limit))
	began := time.Now()
	var units, fallback atomic.Int64
	run := func(span time.Duration) float64 {
		before := units.Load()
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		var all sync.WaitGroup
		for i, l := range ls {
			every := time.Second / 600 // 1200 a second in region a
			if i >= 2 {
				every = time.Second / 30
			}
			all.Go(func() {
				tick := time.NewTicker(every)
				defer tick.Stop()
				for {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
					}
					asked := time.Now()
					res, err := l.Allow(context.Background(), "k")
					if err != nil {
						t.Error(err)
						return
					}
					switch {
					case res.Source == hybridlimit.SourceFallback:
						fallback.Add(1)
					case res.Allowed:
						units.Add(1)
						mu.Lock()
						m.Admit(int64(asked.Sub(began)), 1) // the limiter admitted it later, so the interval is no shorter
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		return float64(units.Load()-before) / span.Seconds() / 900
	}
	excess := func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return m.Excess()
	}
	settle := 8 * time.Second
	run(settle)
	if part := run(5 * time.Second); part < 0.8 {
		t.Errorf("%.3f of the limit is admitted", part)
	}
	for _, p := range far {
		p.Pause()
	}
	lost := ls[0].Stats().Late + ls[1].Stats().Late + ls[0].Stats().Lost + ls[1].Stats().Lost
	run(settled)
	apart := run(5 * time.Second)
	lost = ls[0].Stats().Late + ls[1].Stats().Late + ls[0].Stats().Lost + ls[1].Stats().Lost - lost
	for _, p := range far {
		p.Resume()
	}
	run(settled)
	again := run(5 * time.Second)
	t.Logf("cut off %.3f of the limit, connected again %.3f; excess %.1f; %d units are lost of at most %d under way", apart, again, excess(), lost, 900/12)
	if again < 0.8 || lost > 900/12 {
		t.Errorf("connected again, %.3f of the limit is admitted; %d units are lost", again, lost)
	}
	bound := 0.0
	for i := 0; i < len(ls); i += 2 {
		s := ls[i].Here().Stats()
		bound += float64(s.Fleet * s.Credit)
	}
	// A busy machine may decide a call some ms after it was made.
	if got := excess(); got > bound+1 {
		t.Errorf("excess %.2f, at most %.0f", got, bound)
	}
	for _, fault := range []struct {
		name     string
		down, up func(*redistest.Server) error
	}{
		{"SIGSTOP", (*redistest.Server).Pause, (*redistest.Server).Resume},
		{"SIGKILL", func(s *redistest.Server) error { s.Kill(); return nil }, (*redistest.Server).Restart},
	} {
		if err := fault.down(servers[1]); err != nil {
			t.Fatal(err)
		}
		run(5 * time.Second)
		if err := fault.up(servers[1]); err != nil {
			t.Fatal(err)
		}
		run(settle)
		if part := run(5 * time.Second); part < 0.8 {
			t.Errorf("%s: afterwards, %.3f of the limit is admitted", fault.name, part)
		}
	}
	// The killed server was full again, until the views of its processes had come.
	if got, most := excess(), bound+1+float64(ls[2].Here().Limit().Burst)+900.0/12; got > most {
		t.Errorf("with a server that lost its memory: excess %.2f, at most %.0f", got, most)
	}
	t.Logf("excess %.1f in all; %d calls were decided by a fallback", excess(), fallback.Load())
}
