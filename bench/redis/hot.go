package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// hotSize is a key that all processes use, with hotEach units a second for each of them. A member has several hubs, each of
// which is a process to the fleet and to Redis, with connections of its own.
type hotSize struct {
	members     int
	hubs        int           // of a member
	warm, lasts time.Duration // before the rounds, and of a round
	rounds      int
}

const (
	hotEach = 10
	hotLoad = 1.5 // calls per unit of the rate
	flooded = 4   // the same at first, so that the burst is used up
)

// hotBursts are in seconds. Each has the scenario of the lab that has the same limit for ten thousand processes.
var hotBursts = []struct {
	seconds  int64
	name     string
	scenario string
}{{1, "1 s", "n10000-second ×1.5"}, {10, "10 s", "n10000 ×1.5"}}

// hotKinds are the limiters, and their names in the lab.
var hotKinds = []struct {
	kind
	lab string
}{{kind{"Limiter, strict", hybridOf(hybrid.ModeStrict, ready)}, "leases"}, {kind{"RateLeaseLimiter", newRateLeases}, "rate-leases"}}

var newRateLeases = on(func(ctx context.Context, rdb *redis.Client, limit hybridlimit.Limit) (target, error) {
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: quiet})
	if err != nil {
		return target{}, err
	}
	t := target{close: func() { hub.Shutdown(context.Background()) }}
	l, err := hub.RateLeases(limit, hybrid.RateLeaseConfig{Name: "hybrid"})
	if err != nil {
		return t, err
	}
	t.allow = func(ctx context.Context, key string) (bool, error) {
		r, err := l.Allow(ctx, key)
		return r.Allowed, err
	}
	t.stats = func() hybrid.Stats {
		s := l.Stats()
		return hybrid.Stats{Allowed: s.Allowed, Denied: s.Denied, Ops: s.Ops, Fleet: s.Fleet}
	}
	return t, l.Ready(ctx)
})

// hotKeys measures a hot key in many processes. The rounds of a limiter follow each other at once, so that its burst stays
// used up.
func (r *results) hotKeys(ctx context.Context, _ *benchkit.Redis) error {
	lab, err := labOps()
	if err != nil {
		return err
	}
	for _, burst := range hotBursts {
		for _, k := range hotKinds {
			if err := r.hotKey(ctx, k.kind, burst.name, burst.seconds, lab[burst.scenario+" "+k.lab]); err != nil {
				return fmt.Errorf("%s, a burst of %s: %w", k.name, burst.name, err)
			}
		}
	}
	return nil
}

func (r *results) hotKey(ctx context.Context, k kind, load string, seconds int64, lab float64) error {
	srv, err := benchkit.StartRedis()
	if err != nil {
		return err
	}
	size := r.scale.hot
	processes := int64(size.members * size.hubs)
	limit := hybridlimit.TokenBucket(processes*hotEach, time.Second, processes*hotEach*seconds)
	f := &fleet{name: k.name, srv: srv, size: fleetSize{limit: limit, members: size.members, hubs: size.hubs, keys: 1, lasts: size.lasts}}
	defer f.close()
	if err := errors.Join(f.rest(ctx), f.open(ctx)); err != nil {
		return err
	}
	rate := float64(limit.Rate)
	turn := func(n int, load float64, lasts time.Duration) (benchkit.Figures, error) {
		f.size.perSecond, f.size.lasts = int(load*rate), lasts
		return f.turn(ctx, uint64(n))
	}
	uses := time.Duration(1.3 * float64(seconds) / (flooded - 1) * float64(time.Second))
	if _, err := turn(100, flooded, uses); err != nil {
		return err
	}
	if _, err := turn(101, hotLoad, size.warm); err != nil {
		return err
	}
	for round := range size.rounds {
		cost, err := turn(round, hotLoad, size.lasts)
		if err != nil {
			return err
		}
		each := cost["calls"] / float64(processes) / size.lasts.Seconds() // of a process and second
		f := benchkit.Figures{
			"ops": cost["ops"] * each, "messages": cost["messages"] * each, "cpu": cost["cpu"] * each, "astray": cost["astray"],
			"denied": cost["denied"], "lab": lab,
		}
		f["cpu"] = max(f["cpu"], 0.001) // that of an idle Redis is subtracted
		f["processes"], f["cpu/message"] = 1e6/f["cpu"], f["cpu"]/max(f["messages"], 0.001)
		f["extrapolated"] = 1e6 / (f["cpu/message"] * (f["messages"] - f["ops"] + lab))
		r.Add("hot", load, k.name, f)
	}
	return nil
}

// several makes targets that take calls in turn, at random.
func several(ctx context.Context, n int, of maker, addr string, w *benchkit.Wire, limit hybridlimit.Limit) (t target, err error) {
	all := make([]target, n)
	if err := benchkit.Spread(n, func(i int) (err error) {
		all[i], err = of(ctx, addr, w, limit)
		return err
	}); err != nil || n < 2 {
		return all[0], err
	}
	return target{
		allow: func(ctx context.Context, key string) (bool, error) { return all[rand.IntN(n)].allow(ctx, key) },
		close: func() {
			for _, one := range all {
				one.close()
			}
		},
		stats: func() hybrid.Stats {
			sum := all[0].stats()
			sum.Allowed, sum.Denied, sum.Ops = map[hybridlimit.Source]int64{}, map[hybridlimit.Source]int64{}, 0
			for _, one := range all {
				s := one.stats()
				sum.Ops += s.Ops
				for src, n := range s.Allowed {
					sum.Allowed[src] += n
				}
				for src, n := range s.Denied {
					sum.Denied[src] += n
				}
			}
			return sum
		},
	}, nil
}

// labOps returns the ops of a process and second that the lab has found, by scenario and kind.
func labOps() (map[string]float64, error) {
	raw, err := os.ReadFile("../docs/lab/hot.json")
	if os.IsNotExist(err) {
		raw, err = os.ReadFile("../../docs/lab/hot.json") // in a test
	}
	if err != nil {
		return nil, err
	}
	var lab struct {
		Rows []struct {
			Scenario, Kind string
			Figures        map[string]float64
		}
	}
	if err := json.Unmarshal(raw, &lab); err != nil {
		return nil, err
	}
	ops := map[string]float64{}
	for _, row := range lab.Rows {
		ops[row.Scenario+" "+row.Kind] = row.Figures["ops/process/s"]
	}
	for _, burst := range hotBursts {
		for _, k := range hotKinds {
			if ops[burst.scenario+" "+k.lab] == 0 {
				return nil, fmt.Errorf("docs/lab/hot.json has no ops of %s, %s: run make lab-hot", burst.scenario, k.lab)
			}
		}
	}
	return ops, nil
}

func (r *results) hotParts() []part {
	return []part{{
		table: "hot",
		text: fmt.Sprintf("## A hot key\n\n%d programs with %d hubs each use one key. To Redis and to the fleet each hub is a process, with connections of its own. "+
			"There are %d units a second for each of them, and %.1f times as many calls. "+
			"The burst is used up. Ops and messages are those of a process and second, messages with heartbeats. "+
			"*Processes* is the number that would fill a core at this cost of a message. A Redis that is mostly idle, as here, pays more for a message than one that is busy. "+
			"*In the lab* is the ops of ten thousand processes, by `make lab-hot` (`n10000-second ×1.5` and `n10000 ×1.5` of [docs/lab](../docs/lab/README.md)), "+
			"and the last column has the processes with these ops.",
			r.scale.hot.members, r.scale.hot.hubs, hotEach, hotLoad),
		names: []string{"burst", "limiter"},
		label: byLoad(),
		columns: []benchkit.Column{
			col("ops", "ops", two), col("messages", "messages", two), col("Redis CPU of a process, µs/s", "cpu", one),
			col("of a message, µs", "cpu/message", one), col("processes", "processes", benchkit.Whole), col("ops in the lab", "lab", two),
			col("processes with these", "extrapolated", benchkit.Whole), col("denied, %", "denied", benchkit.Share("%.1f")),
		},
	}}
}
