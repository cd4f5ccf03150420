package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// hotSize is a key that all members use, with hotEach units a second for each of them.
type hotSize struct {
	members     int
	warm, lasts time.Duration // before the rounds, and of a round
	rounds      int
}

const (
	hotEach = 10
	hotLoad = 1.5 // calls per unit of the rate
	flooded = 10  // the same in the first second, so that the burst is used up
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

// hotKeys measures a hot key in many processes.
func (r *results) hotKeys(ctx context.Context, _ *benchkit.Redis) error {
	lab, err := labOps()
	if err != nil {
		return err
	}
	for _, burst := range hotBursts {
		size := r.scale.hot
		limit := hybridlimit.TokenBucket(int64(size.members)*hotEach, time.Second, int64(size.members)*hotEach*burst.seconds)
		var all []*fleet
		err := func() error {
			defer func() {
				for _, f := range all {
					f.close()
				}
			}()
			for _, k := range hotKinds {
				srv, err := benchkit.StartRedis()
				if err != nil {
					return err
				}
				f := &fleet{name: k.name, srv: srv, size: fleetSize{limit: limit, members: size.members, keys: 1, lasts: size.lasts}}
				all = append(all, f)
				if err := errors.Join(f.rest(ctx), f.open(ctx), f.warm(ctx, size.warm)); err != nil {
					return err
				}
			}
			return benchkit.Turns(0, size.rounds, len(all), func(round, i int) error {
				cost, err := all[i].turn(ctx, uint64(round+1))
				if err != nil {
					return err
				}
				each := cost["calls"] / float64(size.members) / size.lasts.Seconds() // of a process and second
				f := benchkit.Figures{
					"ops": cost["ops"] * each, "messages": cost["messages"] * each, "cpu": cost["cpu"] * each, "astray": cost["astray"],
					"denied": cost["denied"], "lab": lab[burst.scenario+" "+hotKinds[i].lab],
				}
				f["processes"], f["cpu/op"] = 1e6/f["cpu"], f["cpu"]/f["ops"]
				f["extrapolated"] = 1e6 / (f["cpu/op"] * f["lab"])
				r.Add("hot", burst.name, all[i].name, f)
				return nil
			})
		}()
		if err != nil {
			return fmt.Errorf("a burst of %s: %w", burst.name, err)
		}
	}
	return nil
}

// warm uses up the burst, and makes the steady load for a while.
func (f *fleet) warm(ctx context.Context, lasts time.Duration) error {
	rate := float64(f.size.limit.Rate)
	steady := f.size.lasts
	for turn, load := range []struct {
		perSecond float64
		lasts     time.Duration
	}{{flooded * rate, time.Duration(float64(f.size.limit.Burst) / rate / (flooded - 1) * 2 * float64(time.Second))}, {hotLoad * rate, lasts}} {
		f.size.perSecond, f.size.lasts = int(load.perSecond), load.lasts
		if _, err := f.turn(ctx, uint64(100+turn)); err != nil {
			return err
		}
	}
	f.size.lasts = steady
	return nil
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
	last := ""
	return []part{{
		table: "hot",
		text: fmt.Sprintf("## A hot key\n\n%d processes use one key, with %d units a second for each process, at %.1f times the rate. "+
			"The burst is used up. Ops and messages are those of a process and second, messages with heartbeats, and the CPU of Redis "+
			"is that of all. *Processes* is the number that would fill a core. *In the lab* is ops of ten thousand processes, by `make lab-hot` "+
			"(`n10000-second ×1.5` and `n10000 ×1.5` of [docs/lab](../docs/lab/README.md)), and the last column has the processes with these ops.",
			r.scale.hot.members, hotEach, hotLoad),
		names: []string{"burst", "limiter"},
		label: func(row *benchkit.Row) string {
			load := row.Load
			if load == last {
				load = ""
			}
			last = row.Load
			return load + " | " + row.Name
		},
		columns: []benchkit.Column{
			col("ops", "ops", two), col("messages", "messages", two), col("Redis CPU of a process, µs/s", "cpu", one),
			col("of an op, µs", "cpu/op", one), col("processes", "processes", benchkit.Whole), col("ops in the lab", "lab", two),
			col("processes with these", "extrapolated", benchkit.Whole), col("denied, %", "denied", benchkit.Share("%.1f")),
		},
	}}
}
