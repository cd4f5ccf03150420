package rlqs

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/rls"
	"github.com/hybridlimit/hybridlimit/rls/internal/quotatest"
)

const perSecond = 1000.0

// replica returns a service with one rule of 1000 a second.
func replica(t *testing.T, b *redistest.Bubble) (*Service, *hybrid.Hub) {
	t.Helper()
	hub, err := hybrid.NewHub(b.Client(nil), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := rls.New(hub, rls.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rls.ParseRules([]rls.File{{Name: "a", Data: []byte("domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: second, requests_per_unit: 1000}}\n")}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := rules.SetRules(set); err != nil {
		t.Fatal(err)
	}
	s, err := New(hub, rules, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		_ = hub.Close()
	})
	return s, hub
}

// client is an Envoy with a stream to a replica.
type client struct {
	quotatest.Envoy
	one    *session
	end    func() // of the stream
	next   time.Time
	late   *quotatest.Assignment // an answer that comes at lateAt
	lateAt time.Time
}

// connect begins a stream to a replica.
func (c *client) connect(t *testing.T, s *Service) {
	t.Helper()
	var err error
	if c.one, err = s.begin(); err != nil {
		t.Fatal(err)
	}
	c.end = sync.OnceFunc(c.one.end)
	t.Cleanup(c.end)
}

// report sends a report, and hears the answer.
func (c *client) report(t *testing.T, now time.Time) {
	t.Helper()
	c.hear(t, c.ask(t, now), now)
}

// ask sends a report, and returns the answer.
func (c *client) ask(t *testing.T, now time.Time) *quotatest.Assignment {
	t.Helper()
	out, err := c.one.answer(c.Report("d", map[string]string{"k": "v"}, now), now)
	if err != nil {
		t.Fatal(err)
	}
	return out.GetBucketAction()[0].GetQuotaAssignmentAction()
}

func (c *client) hear(t *testing.T, a *quotatest.Assignment, now time.Time) {
	t.Helper()
	if err := c.Hear(a, now); err != nil {
		t.Fatal(err)
	}
}

// fleetRun is Envoys on three replicas that share a Redis.
type fleetRun struct {
	t        *testing.T
	redis    *redistest.Bubble
	services []*Service
	hubs     []*hybrid.Hub
	clients  []client
	now      time.Time
}

// fault is what happens at a time.
type fault struct {
	at time.Duration
	do func(f *fleetRun)
}

// leave sends the Envoys of the first replica to the second one, after a time.
func (f *fleetRun) leave(after time.Duration) {
	for i := 0; i < len(f.clients); i += len(f.services) {
		f.clients[i].connect(f.t, f.services[1])
		f.clients[i].next = f.now.Add(after)
	}
}

// fleetOf runs Envoys with a load, which is parts of the limit.
func fleetOf(t *testing.T, envoys int, load func(i int, at time.Duration) float64, lasts time.Duration, faults []fault) (excess, used float64) {
	t.Helper()
	const step, every, replicas = 20 * time.Millisecond, 5 * time.Second, 3
	f := &fleetRun{t: t, redis: redistest.NewBubble(t), clients: make([]client, envoys)}
	for range replicas {
		s, hub := replica(t, f.redis)
		f.services, f.hubs = append(f.services, s), append(f.hubs, hub)
	}
	time.Sleep(5 * time.Second)
	began, clients := time.Now(), f.clients
	for i := range clients {
		clients[i].connect(t, f.services[i%replicas])
		clients[i].next, clients[i].Reported = began.Add(time.Duration(i)*every/time.Duration(envoys)), began
	}
	m := quotatest.Meter{Limit: perSecond}
	for at := time.Duration(0); at < lasts; at += step {
		time.Sleep(time.Until(began.Add(at)))
		now := began.Add(at)
		f.now = now
		if len(faults) > 0 && at >= faults[0].at {
			faults[0].do(f)
			faults = faults[1:]
		}
		here, asked := 0.0, 0.0
		for i := range clients {
			c := &clients[i]
			passed, came := c.Pass(load(i, at)*perSecond*step.Seconds(), step, now)
			here, asked = here+passed, asked+came
			if !now.Before(c.next) {
				c.report(t, now)
				c.next = now.Add(every)
			}
		}
		m.Add(here, asked, step, at >= 20*time.Second)
	}
	return m.Excess, m.Use()
}

// TestFleet compares fleets with the bounds of the package documentation.
func TestFleet(t *testing.T) {
	even := func(int, time.Duration) float64 { return 2.0 / 12 }
	dies := func(away time.Duration) []fault {
		return []fault{{time.Minute, func(f *fleetRun) {
			_ = f.hubs[0].Close() // its permits stay taken until the fleet misses it
			f.leave(away)
		}}}
	}
	for _, c := range []struct {
		name         string
		envoys       int
		load         func(i int, at time.Duration) float64
		faults       []fault
		excess, used float64
	}{
		{"even", 12, even, nil, 0.1, 0.85},
		{"one asks 80 %", 6, func(i int, _ time.Duration) float64 {
			if i == 0 {
				return 1.6
			}
			return 0.08
		}, nil, 0.1, 0.8},
		{"half", 6, func(int, time.Duration) float64 { return 0.5 / 6 }, nil, 0.1, 0.9},
		{"a replica ends", 12, even, []fault{{time.Minute, func(f *fleetRun) {
			for i := 0; i < len(f.clients); i += len(f.services) {
				f.clients[i].end() // as the stream does when Close begins
			}
			_ = f.services[0].Close()
			_ = f.hubs[0].Close()
			f.leave(time.Second)
		}}}, 0.1, 0.8},
		{"a replica dies", 12, even, dies(time.Second), 0.1, 0.8},
		// The part of the replica that dies, a third, may pass twice between 3 s and 10 s.
		{"its Envoys hear nothing", 12, even, dies(12 * time.Second), 0.1 + 7.0/3, 0.8},
		{"Redis is wiped", 12, even, []fault{{time.Minute, func(f *fleetRun) { f.redis.Restart() }}}, 0.1, 0.85},
		{"Redis is away", 12, even, []fault{
			{time.Minute, func(f *fleetRun) { f.redis.Kill() }}, {80 * time.Second, func(f *fleetRun) { f.redis.Restart() }},
		}, 0.1, 0.85},
		{"Redis is away, and one replica has most", 12, func(i int, _ time.Duration) float64 {
			return map[bool]float64{true: 0.4, false: 0.02}[i%3 == 0]
		}, []fault{
			{time.Minute, func(f *fleetRun) { f.redis.Kill() }}, {90 * time.Second, func(f *fleetRun) { f.redis.Restart() }},
		}, 0.1, 0.55},
		{"Redis is away, and the load moves", 12, func(i int, at time.Duration) float64 {
			return map[bool]float64{true: 0.4, false: 0.02}[i%3 == int(at/(70*time.Second))]
		}, []fault{
			{time.Minute, func(f *fleetRun) { f.redis.Kill() }}, {100 * time.Second, func(f *fleetRun) { f.redis.Restart() }},
		}, 0.1, 0.4},
		{"Redis is away from the beginning", 12, even, []fault{
			{0, func(f *fleetRun) { f.redis.Kill() }}, {time.Minute, func(f *fleetRun) { f.redis.Restart() }},
		}, 0.1, 0.75},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				excess, used := fleetOf(t, c.envoys, c.load, 2*time.Minute, c.faults)
				if t.Logf("excess %.3f s, use %.1f %%", excess, 100*used); excess > c.excess || used < c.used {
					t.Errorf("excess %.3f s of the limit, use %.3f; want at most %.2f and at least %.2f", excess, used, c.excess, c.used)
				}
			})
		})
	}
}
