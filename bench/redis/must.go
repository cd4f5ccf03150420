package main

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
)

// musts returns the required figures.
func (r *results) musts() []benchkit.Must {
	own := func(what string, bound benchkit.Bound, table, figure, to string) benchkit.Must {
		return benchkit.Must{What: what, Bound: bound, Table: table, Load: onOwnKeys, Name: "global", To: to, Figure: figure}
	}
	beat := func(what string, most float64, figure, to string) benchkit.Must {
		return benchkit.Must{
			What: what, Bound: benchkit.AtMost(most), Table: "beat", Load: "1", Name: "100", To: to, Figure: figure,
		}
	}
	all := []benchkit.Must{
		{
			What:  fmt.Sprintf("Redis CPU: an op in a batch of %d / an op in a pipeline", protocol.MaxOps),
			Bound: benchkit.AtMost(0.65), Table: "op", Name: fmt.Sprint(protocol.MaxOps), Figure: "cpu / alone cpu",
		},
		{
			What:  "hybrid, hot key: messages per decision",
			Bound: benchkit.AtMost(1.0 / 500), Table: "decision", Load: onHotKey, Name: "hybrid", Figure: "messages",
		},
		{
			What:  fmt.Sprintf("decisions/s on the hot key, %d goroutines: hybrid / redis_rate", callers),
			Bound: benchkit.AtLeast(300), Table: "decision", Load: onHotKey, Name: "hybrid", To: "redis_rate", Figure: "perSecond",
		},
		beat(fmt.Sprintf("Redis CPU: a heartbeat, %d processes with 100 limiters, µs", beatProcesses), 20, "cpu", ""),
		beat("the same / with one limiter", 1.2, "cpu", "1"),
		beat("messages a second of an idle process with 100 limiters", 1, "messages", ""),
		own(fmt.Sprintf("Redis CPU of a decision on %s: global / redis_rate", onOwnKeys), benchkit.AtMost(1),
			"decision", "cpu", "redis_rate"),
		own(fmt.Sprintf("decisions/s on %s, %d goroutines: global / redis_rate", onOwnKeys, callers), benchkit.AtLeast(1.5),
			"decision", "perSecond", "redis_rate"),
		own(fmt.Sprintf("p50 of a decision on %s, one caller: global / redis_rate", onOwnKeys), benchkit.AtMost(1.1),
			"single", "p50", "redis_rate"),
		own("allocations of a decision of global", benchkit.AtMost(12), "single", "mallocs", ""),
		own("bytes to and from Redis: a decision of global", benchkit.AtMost(250), "decision", "bytes", ""),
	}
	all[9].Floor = true // whole allocations, as in go test: the rest are those of other goroutines
	if rows := r.Of("fleet"); len(rows) > 0 {
		astray := 0.0
		for _, row := range rows {
			astray = max(astray, row.Median("astray"))
		}
		all = append(all, benchkit.Must{
			// Otherwise the costs are not those of decisions that Redis made.
			What:  "services: errors and decisions without Redis, the largest share of a limiter",
			Bound: benchkit.AtMost(0.01), Got: astray,
		})
	}
	all = append(all, fleetMusts()...)
	return r.Got(append(all, benchkit.Must{
		What:  "bytes to and from Redis: a sync of one op, with its envelope",
		Bound: benchkit.AtMost(250), Table: "op", Name: "1", Figure: "bytes",
	}, benchkit.Must{
		What:  fmt.Sprintf("CPU of an insertion of a key into a full cache: %s / golang-lru", ownCache),
		Bound: benchkit.AtMost(3.5), Table: "churn", Name: ownCache, To: plainCache,
		Figure: "process", // and not wall time, because these rounds are not interleaved
	}, benchkit.Must{
		What:  "keys in use that a scan evicted: hybrid / golang-lru",
		Bound: benchkit.AtMost(1), Table: "survival", Name: ownCache, To: plainCache, Figure: "missed",
	})...)
}

// fleetMusts returns the required figures of fleets, most of them as ratios to redis_rate.
func fleetMusts() (all []benchkit.Must) {
	for _, m := range []struct {
		load, limiter, figure string
		bound                 float64
	}{
		{"2000 calls a second", "hybrid", "cpu", 0.5},
		{"2000 calls a second", "hybrid", "messages", 0.2},
		{"2000 calls a second", "hybrid", "p50", 0.2},
		{"2000 calls a second", "hybrid, deferred", "cpu", 0.4},
		{"2000 calls a second", "hybrid, strict", "cpu", 1},
		{"500 calls a second", "hybrid", "cpu", 0.9},
		{"20 000 calls a second", "hybrid", "cpu", 0.4},
		{"Zipf", "hybrid", "cpu", 0.5},
		{"two limits", "hybrid", "cpu", 0.6},
		{"two limits", "global", "cpu", 0.8},
		{"two limits", "global", "p50", 1.1},
		{"few calls", "hybrid", "cpu", 1},
		{"few calls", "hybrid", "p50", 1.3},
	} {
		must := benchkit.Must{
			Bound: benchkit.AtMost(m.bound), Table: "fleet", Load: m.load, Name: m.limiter, Figure: m.figure, To: "redis_rate",
		}
		name, ratio := m.figure, " / redis_rate"
		switch m.figure {
		case "cpu":
			name = "Redis CPU"
		case "messages":
			must.To, ratio = "", ""
		}
		must.What = m.load + ": " + name + ": " + m.limiter + ratio
		all = append(all, must)
	}
	return all
}
