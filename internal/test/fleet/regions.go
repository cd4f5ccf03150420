package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/region"
)

// The kinds in several regions, with [CentralExact]: one bucket without a network. All get the same calls at the same
// times.
const (
	Regions      Kind = "regions"       // package region
	StaticShares Kind = "static-shares" // package hybrid, with an equal share in each region
	OneRedis     Kind = "one-redis"     // package hybrid, on the Redis of the first region; calls wait for it
)

// RegionScenario is one run in several regions. No message is lost, and no process ends.
type RegionScenario struct {
	Seed      uint64
	Kind      Kind
	Regions   int
	Processes int // of each region
	Limit     hybridlimit.Limit
	Load      float64       // calls per unit of the rate
	Hot       float64       // the part of the calls that is in one region; the others have the rest
	Stay      time.Duration // of that part in a region, before it moves to the next one
	Latency   time.Duration // a round trip in a region
	Away      time.Duration // a round trip between regions
	Span      time.Duration // of the load
	Steady    time.Duration // the first part of each stay, which the figures leave out
}

func (s RegionScenario) validate() error {
	if s.Regions < 2 || s.Processes < 1 || s.Load <= 0 || s.Hot < 0 || s.Hot > 1 || s.Latency < 0 || s.Away < 0 ||
		s.Steady < 0 || s.Stay <= s.Steady || s.Span < s.Stay {
		return errors.New("fleet: a number of the scenario is out of range")
	}
	return s.Limit.Validate()
}

// RegionReport is the result of a run. Calls, Admitted and Waited are those of the steady parts.
type RegionReport struct {
	Calls    int64
	Admitted int64
	Waited   int64         // calls that took any time
	Slowest  time.Duration // decision of the whole run
	Excess   float64       // of the whole run, in units above Burst + rate·t; a call counts when it was decided
	Away     float64       // messages a second of the whole load, from one region to another; of the busiest pair
	Fallback int64         // decisions of the whole run
}

// regionWorld is a run in progress, in a bubble.
type regionWorld struct {
	s      RegionScenario
	t      *testing.T
	rnd    *rand.Rand
	start  time.Time
	redis  []*redistest.Bubble
	places [][]regional // by region
	away   map[string][]*redistest.MemLink

	mu     sync.Mutex // guards the fields below
	report RegionReport
	meter  *meter.Bucket
}

// regional is a limiter in a region.
type regional interface {
	Allow(ctx context.Context, key string) (hybridlimit.Result, error)
}

// RunRegions plays a scenario.
func RunRegions(t *testing.T, s RegionScenario) (report RegionReport) {
	t.Helper()
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		redis.SetLogger(silence{})
		w := &regionWorld{
			s: s, t: t, rnd: rand.New(rand.NewPCG(s.Seed, 0)), start: time.Now(), meter: meter.NewBucket(algo.BucketOf(s.Limit)),
			away: map[string][]*redistest.MemLink{},
		}
		w.build()
		time.Sleep(time.Duration(lead) + 2*time.Second)
		before := w.messages()
		w.play()
		for pair, n := range w.messages() {
			w.report.Away = max(w.report.Away, float64(n-before[pair])/s.Span.Seconds())
		}
		w.report.Excess = w.meter.Excess()
		report = w.report
	})
	return report
}

// build starts the processes.
func (w *regionWorld) build() {
	if w.s.Kind == CentralExact {
		one := &lonely{central: newCentral(w.s.Limit)}
		for range w.s.Regions {
			w.places = append(w.places, []regional{one})
		}
		return
	}
	for range w.s.Regions {
		w.redis = append(w.redis, redistest.NewBubble(w.t))
	}
	for i := range w.s.Regions {
		var place []regional
		for range w.s.Processes {
			place = append(place, w.process(i))
		}
		w.places = append(w.places, place)
	}
}

// link returns a way from one region to the Redis of another.
func (w *regionWorld) link(from, to int) *redistest.MemLink {
	l := w.redis[to].Link()
	if from == to {
		l.Latency(w.s.Latency/2, w.s.Latency/2)
		return l
	}
	l.Latency(w.s.Away/2, w.s.Away/2)
	pair := fmt.Sprint(from, " to ", to)
	w.away[pair] = append(w.away[pair], l)
	return l
}

// process starts a process in a region.
func (w *regionWorld) process(at int) regional {
	home, limit := at, w.s.Limit
	cfg := hybrid.Config{Name: "api"}
	switch n := int64(w.s.Regions); w.s.Kind {
	case OneRedis:
		home, cfg.MaxWait = 0, 4*w.s.Away
	case StaticShares:
		limit.Burst = limit.BurstSize() / n
		limit.Period *= time.Duration(n)
	}
	hub, err := hybrid.NewHub(w.link(at, home).Client(wide), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { hub.Close() })
	if w.s.Kind != Regions {
		l, err := hub.Limiter(limit, cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		return l
	}
	others := map[string]redis.UniversalClient{}
	for to := range w.s.Regions {
		if to != at {
			others[fmt.Sprint("r", to)] = w.link(at, to).Client(wide)
		}
	}
	l, err := region.New(limit, region.Config{Name: "api", Here: fmt.Sprint("r", at), Hub: hub, Others: others})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l
}

func wide(o *redis.Options) { o.PoolSize = 256 }

// messages returns the messages between regions so far. Heartbeats are among them, as far as they go to another region.
func (w *regionWorld) messages() map[string]int {
	sum := map[string]int{}
	for pair, links := range w.away {
		for _, l := range links {
			for cmd, n := range l.Counts() {
				if strings.HasPrefix(cmd, "EVAL") {
					sum[pair] += n.Seen
				}
			}
		}
	}
	return sum
}

// play makes the calls. The times between them are exponential.
func (w *regionWorld) play() {
	var calls sync.WaitGroup
	began := time.Now()
	mean := float64(w.s.Limit.Period) / float64(w.s.Limit.Rate) / w.s.Load
	for at := time.Duration(0); at < w.s.Span; at += time.Duration(w.rnd.ExpFloat64() * mean) {
		time.Sleep(time.Until(began.Add(at)))
		stay := int(at / w.s.Stay)
		place := stay % w.s.Regions
		if w.rnd.Float64() >= w.s.Hot {
			place = (place + 1 + w.rnd.IntN(w.s.Regions-1)) % w.s.Regions
		}
		of := w.places[place]
		l, steady := of[w.rnd.IntN(len(of))], at-time.Duration(stay)*w.s.Stay >= w.s.Steady
		calls.Go(func() { w.call(l, steady) })
	}
	calls.Wait()
}

// call makes one call.
func (w *regionWorld) call(l regional, steady bool) {
	made := time.Now()
	res, err := l.Allow(context.Background(), "k")
	took := time.Since(made)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.t.Error(err)
	}
	r := &w.report
	if r.Slowest = max(r.Slowest, took); res.Source == hybridlimit.SourceFallback {
		r.Fallback++
	}
	if res.Allowed {
		w.meter.Admit(int64(made.Add(took).Sub(w.start)), 1)
	}
	if !steady {
		return
	}
	if r.Calls++; res.Allowed {
		r.Admitted++
	}
	if took > 0 {
		r.Waited++
	}
}

// lonely is a bucket without a network.
type lonely struct {
	mu      sync.Mutex
	central *central
}

func (l *lonely) Allow(context.Context, string) (res hybridlimit.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	res.Allowed, _ = l.central.take(time.Now().UnixNano(), 1)
	return res, nil
}
