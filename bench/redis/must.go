package main

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
)

// mustOf returns a required figure of a row or, if to is not empty, its ratio to that of another row.
func mustOf(what string, bound benchkit.Bound, table, load, name, to, figure string) benchkit.Must {
	return benchkit.Must{What: what, Bound: bound, Table: table, Load: load, Name: name, To: to, Figure: figure}
}

// musts returns the required figures.
func (r *results) musts() []benchkit.Must {
	most, rival := benchkit.AtMost, "redis_rate"
	// Whole allocations, as in go test. The rest are those of other goroutines.
	mallocs := mustOf("allocations of a decision of global", most(12), "single", onOwnKeys, "global", "", "mallocs")
	mallocs.Floor = true
	all := []benchkit.Must{
		mustOf(fmt.Sprintf("Redis CPU: an op in a batch of %d / an op in a pipeline", protocol.MaxOps), most(0.65),
			"op", "", fmt.Sprint(protocol.MaxOps), "", "cpu / alone cpu"),
		mustOf("hybrid, hot key: messages per decision", most(1.0/500), "decision", onHotKey, "hybrid", "", "messages"),
		mustOf(fmt.Sprintf("decisions/s on the hot key, %d goroutines: hybrid / redis_rate", callers), benchkit.AtLeast(300),
			"decision", onHotKey, "hybrid", rival, "perSecond"),
		mustOf(fmt.Sprintf("Redis CPU: a heartbeat, %d processes with 100 limiters, µs", beatProcesses), most(20),
			"beat", "1", "100", "", "cpu"),
		mustOf("the same / with one limiter", most(1.2), "beat", "1", "100", "1", "cpu"),
		mustOf("messages a second of an idle process with 100 limiters", most(1), "beat", "1", "100", "", "messages"),
		mustOf(fmt.Sprintf("Redis CPU of a decision on %s: global / redis_rate", onOwnKeys), most(1),
			"decision", onOwnKeys, "global", rival, "cpu"),
		mustOf(fmt.Sprintf("decisions/s on %s, %d goroutines: global / redis_rate", onOwnKeys, callers),
			benchkit.AtLeast(1.5), "decision", onOwnKeys, "global", rival, "perSecond"),
		mustOf(fmt.Sprintf("p50 of a decision on %s, one caller: global / redis_rate", onOwnKeys), most(1.1),
			"single", onOwnKeys, "global", rival, "p50"),
		mallocs,
		mustOf("bytes to and from Redis: a decision of global", most(250), "decision", onOwnKeys, "global", "", "bytes"),
	}
	if rows := r.Of("fleet"); len(rows) > 0 {
		// Otherwise the costs are not those of decisions that Redis made.
		astray := benchkit.Must{
			What:  "services: errors and decisions without Redis, the largest share of a limiter",
			Bound: most(0.01),
		}
		for _, row := range rows {
			astray.Got = max(astray.Got, row.Median("astray"))
		}
		all = append(all, astray)
	}
	all = append(all, fleetMusts()...)
	all = append(all,
		mustOf("ops of a process and second on a hot key, burst of 1 s: RateLeaseLimiter", most(1), "hot", "1 s", "RateLeaseLimiter", "", "ops"),
		mustOf("the same, burst of 10 s: Limiter", most(0.5), "hot", "10 s", "Limiter, strict", "", "ops"))
	return r.Got(append(all,
		mustOf("bytes to and from Redis: a sync of one op, with its envelope", most(250), "op", "", "1", "", "bytes"),
		// By CPU time, because these rounds are not interleaved.
		mustOf(fmt.Sprintf("CPU of an insertion of a key into a full cache: %s / golang-lru", ownCache), most(3.5),
			"churn", "", ownCache, plainCache, "process"),
		mustOf("keys in use that a scan evicted: hybrid / golang-lru", most(1),
			"survival", "", ownCache, plainCache, "missed"),
	)...)
}

// fleetMusts returns the required figures of fleets, most of them as ratios to redis_rate.
func fleetMusts() (all []benchkit.Must) {
	const cpu, messages, p50 = "Redis CPU", "messages", "p50"
	figures := map[string]string{cpu: "cpu", messages: messages, p50: p50}
	for _, m := range []struct {
		load, limiter, what string
		bound               float64
	}{
		{"2000 calls a second", "hybrid", cpu, 0.5},
		{"2000 calls a second", "hybrid", messages, 0.2},
		{"2000 calls a second", "hybrid", p50, 0.2},
		{"2000 calls a second", "hybrid, deferred", cpu, 0.4},
		{"2000 calls a second", "hybrid, strict", cpu, 1},
		{"500 calls a second", "hybrid", cpu, 0.9},
		{"20 000 calls a second", "hybrid", cpu, 0.4},
		{"Zipf", "hybrid", cpu, 0.5},
		{"two limits", "hybrid", cpu, 0.6},
		{"two limits", "global", cpu, 0.8},
		{"two limits", "global", p50, 1.1},
		{"few calls", "hybrid", cpu, 1},
		{"few calls", "hybrid", p50, 1.3},
	} {
		to, ratio := "redis_rate", " / redis_rate"
		if m.what == messages {
			to, ratio = "", ""
		}
		all = append(all, mustOf(m.load+": "+m.what+": "+m.limiter+ratio, benchkit.AtMost(m.bound),
			"fleet", m.load, m.limiter, to, figures[m.what]))
	}
	return all
}
