package region_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/region"
)

// TestMain silences go-redis, which reports every failed dial on stderr.
func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

var quiet = slog.New(slog.DiscardHandler)

// globe is some regions in virtual time, with a Redis and some processes each.
type globe struct {
	t      *testing.T
	log    *slog.Logger
	secret hybridlimit.Secret // of processes that are added from now on
	limit  hybridlimit.Limit
	zones  []*zone

	mu    sync.Mutex
	meter *meter.Bucket
	units atomic.Int64
}

// zone is a region of a globe.
type zone struct {
	name  string
	redis *redistest.Bubble
	procs []*process
	calls atomic.Int64
	got   atomic.Int64
}

// process is a process of a zone.
type process struct {
	hub  *hybrid.Hub
	l    *region.Limiter
	near *redistest.MemLink
	far  map[string]*redistest.MemLink // by region
}

const (
	nearBy  = 250 * time.Microsecond // one way, in a region
	farAway = 40 * time.Millisecond  // one way, between regions
)

// newGlobe makes regions with these numbers of processes: "a", "b" and so on.
func newGlobe(t *testing.T, limit hybridlimit.Limit, alter func(*region.Config), procs ...int) *globe {
	t.Helper()
	return newLoggedGlobe(t, quiet, limit, alter, procs...)
}

func newLoggedGlobe(t *testing.T, log *slog.Logger, limit hybridlimit.Limit, alter func(*region.Config), procs ...int) *globe {
	t.Helper()
	g := &globe{t: t, log: log, limit: limit, meter: meter.NewBucket(algo.BucketOf(limit))}
	for i := range procs {
		z := &zone{name: string(rune('a' + i)), redis: redistest.NewBubble(t)}
		g.zones = append(g.zones, z)
	}
	for i, z := range g.zones {
		for range procs[i] {
			g.add(z, alter)
		}
	}
	return g
}

// add starts a process in a zone.
func (g *globe) add(z *zone, alter func(*region.Config)) *process {
	g.t.Helper()
	p := &process{near: z.redis.Link(), far: map[string]*redistest.MemLink{}}
	p.near.Latency(nearBy, nearBy)
	hub, err := hybrid.NewHub(p.near.Client(many), hybrid.HubConfig{Logger: g.log, HashKeys: g.secret})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { hub.Close() })
	cfg := region.Config{Name: "api", Here: z.name, Hub: hub, Others: map[string]redis.UniversalClient{}}
	for _, other := range g.zones {
		if other == z {
			continue
		}
		link := other.redis.Link()
		link.Latency(farAway, farAway)
		p.far[other.name], cfg.Others[other.name] = link, link.Client(many)
	}
	if alter != nil {
		alter(&cfg)
	}
	p.hub = hub
	if p.l, err = region.New(g.limit, cfg); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { p.l.Close() })
	z.procs = append(z.procs, p)
	return p
}

func many(o *redis.Options) { o.PoolSize = 64 }

// run makes calls for a time: perSecond[i] a second in zone i, spread over its processes.
func (g *globe) run(span time.Duration, key string, perSecond ...float64) {
	var all sync.WaitGroup
	until := time.Now().Add(span)
	for i, z := range g.zones {
		if i >= len(perSecond) || perSecond[i] == 0 {
			continue
		}
		every := time.Duration(float64(len(z.procs)) / perSecond[i] * float64(time.Second))
		for j, p := range z.procs {
			all.Go(func() {
				time.Sleep(every*time.Duration(j)/time.Duration(len(z.procs)) + time.Duration(17*i+7*j)*time.Microsecond)
				for time.Now().Before(until) {
					all.Go(func() { g.call(z, p, key) }) // a call that waits does not hold the next one up
					time.Sleep(every)
				}
			})
		}
	}
	all.Wait()
}

// call makes one call.
func (g *globe) call(z *zone, p *process, key string) {
	began := time.Now()
	res, err := p.l.Allow(context.Background(), key)
	if err != nil {
		g.t.Error(err)
		return
	}
	if z.calls.Add(1); res.Allowed {
		z.got.Add(1)
		g.units.Add(1)
		g.mu.Lock()
		g.meter.Admit(int64(time.Since(epoch)), 1)
		g.mu.Unlock()
	}
	if d := time.Since(began); d > time.Second {
		g.t.Errorf("a call took %v", d)
	}
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// excess returns the units above Burst + rate·t.
func (g *globe) excess() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.meter.Excess()
}

// credit returns the bound on the excess: the sum of N·C over all regions.
func (g *globe) credit() (sum float64) {
	for _, z := range g.zones {
		if len(z.procs) > 0 {
			s := z.procs[0].l.Here().Stats()
			sum += float64(s.Fleet * s.Credit)
		}
	}
	return sum
}

// burst returns the burst of a zone.
func (z *zone) burst() int64 { return z.procs[0].l.Here().Limit().Burst }

// empty uses up the buckets of all zones.
func (g *globe) empty(key string) {
	for _, z := range g.zones {
		for range 2 * g.limit.BurstSize() {
			g.call(z, z.procs[0], key)
		}
	}
}

// asks returns the messages between regions so far, by their direction.
func (g *globe) asks() map[string]int {
	sum := map[string]int{}
	for _, z := range g.zones {
		for _, p := range z.procs {
			for name, link := range p.far {
				sum[z.name+" to "+name] += link.Count("EVALSHA").Seen
			}
		}
	}
	return sum
}

// cut separates a zone from the others: nothing is delivered, and new connections hang.
func (g *globe) cut(z *zone, off bool) {
	set := (*redistest.MemLink).Resume
	if off {
		set = (*redistest.MemLink).Pause
	}
	for _, other := range g.zones {
		for _, p := range other.procs {
			for name, link := range p.far {
				if other == z || name == z.name {
					set(link)
				}
			}
		}
	}
}

// lostReplies loses the reply to each nth script.
func lostReplies(nth int) redistest.Script {
	seen := 0
	return func(_ int, cmd []string) redistest.Verdict {
		if len(cmd) == 0 || !strings.EqualFold(cmd[0], "EVALSHA") {
			return redistest.Forward()
		}
		if seen++; seen%nth == 0 {
			return redistest.DropReply(redistest.ThenHang)
		}
		return redistest.Forward()
	}
}

// stats returns the sums of the processes of a zone.
func (z *zone) stats() (sum region.Stats) {
	for _, p := range z.procs {
		s := p.l.Stats()
		sum.Keys, sum.Missed, sum.Asks, sum.Failed = sum.Keys+s.Keys, sum.Missed+s.Missed, sum.Asks+s.Asks, sum.Failed+s.Failed
		sum.Moved, sum.Late, sum.Lost = sum.Moved+s.Moved, sum.Late+s.Late, sum.Lost+s.Lost
	}
	return sum
}

func (g *globe) String() string {
	out := ""
	for _, z := range g.zones {
		out += fmt.Sprintf("%s: %d of %d calls, %+v; ", z.name, z.got.Load(), z.calls.Load(), z.stats())
	}
	return out
}
