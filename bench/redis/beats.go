package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// beatProcesses is the number of processes whose heartbeats are measured.
const beatProcesses = 1000

// beatFleets are the measured fleets. All groups of a fleet share a limiter.
var beatFleets = []struct{ limiters, groups int }{{1, 1}, {30, 1}, {100, 1}, {100, 10}}

// oneBeat has the cost of a heartbeat for Redis, in µs.
type oneBeat struct{ script, cpu float64 }

// beatRow is one fleet.
type beatRow struct {
	limiters, groups int
	cost             series[oneBeat]
	messages         float64 // of one process, a second
}

// beats measures heartbeats: their cost for Redis in fleets of beatProcesses, by rounds of one
// heartbeat of each process, and the messages of an idle hub.
func beats(ctx context.Context, srv *server, rounds int, lasts time.Duration) (rows []*beatRow, err error) {
	rdb := srv.client(nil)
	defer rdb.Close()
	if err = rdb.ScriptLoad(ctx, lua.Fleet.Source).Err(); err != nil {
		return nil, err
	}
	var fleets []*beating
	for i, f := range beatFleets {
		b, err := startBeating(ctx, rdb, fmt.Sprint("fleet", i), f.limiters, f.groups)
		if err != nil {
			return nil, err
		}
		fleets, rows = append(fleets, b), append(rows, &beatRow{limiters: f.limiters, groups: f.groups})
	}
	for range rounds {
		for i, b := range fleets {
			one, err := b.measure(ctx, srv)
			if err != nil {
				return nil, err
			}
			rows[i].cost = append(rows[i].cost, one)
		}
	}
	for _, row := range rows {
		if row.messages, err = idleMessages(ctx, srv, row.limiters, lasts); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// beating is a fleet whose processes know the groups, and the names of the settings.
type beating struct {
	rdb    *redis.Client
	pulses []protocol.Pulse // by process
}

func startBeating(ctx context.Context, rdb *redis.Client, prefix string, limiters, parts int) (*beating, error) {
	names := lua.Names{Prefix: prefix, Tags: lua.DefaultTags}
	var ids, texts, keys []string
	for g := range parts {
		var of []string
		for i := range limiters - 1 {
			of = append(of, fmt.Sprint("limiter-", g, "-", i))
		}
		of = append(of, "shared")
		ids, texts, keys = append(ids, groups.ID(of)), append(texts, groups.Text(of)), append(keys, names.Group(groups.ID(of)))
	}
	b := &beating{rdb: rdb}
	for i := range beatProcesses {
		g := i % parts
		p := protocol.Pulse{
			Group: keys[g], Directory: names.Groups(), Changed: names.Changed(), Names: names.GroupNames(ids[g]), Wanted: names.Wanted(),
			ID: ids[g], Process: fmt.Sprintf("%032d", i), Expiry: protocol.MaxExpiry, Text: texts[g], TTL: 24 * time.Hour,
		}
		for other, key := range keys {
			if other != g {
				p.Others = append(p.Others, key)
			}
		}
		b.pulses = append(b.pulses, p)
	}
	if err := b.all(ctx); err != nil { // they join, and tell their names
		return nil, err
	}
	return b, b.all(ctx) // they learn the directory
}

// all sends a heartbeat of each process, and notes the answers.
func (b *beating) all(ctx context.Context) error {
	pipe := b.rdb.Pipeline()
	for _, p := range b.pulses {
		keys, argv := protocol.EncodePulse(p)
		pipe.EvalSha(ctx, lua.Fleet.SHA, keys, anys(argv)...)
	}
	got, err := pipe.Exec(ctx)
	if err != nil {
		return err
	}
	for i := range b.pulses {
		beat, err := protocol.DecodeBeat(got[i].(*redis.Cmd).Val(), b.pulses[i])
		if err != nil {
			return err
		}
		b.pulses[i].Version, b.pulses[i].Text = beat.Version, ""
	}
	return nil
}

func (b *beating) measure(ctx context.Context, srv *server) (one oneBeat, err error) {
	if err = srv.admin.ConfigResetStat(ctx).Err(); err != nil {
		return one, err
	}
	before, err := srv.cpu(ctx)
	if err != nil {
		return one, err
	}
	const turns = 3
	for range turns {
		if err = b.all(ctx); err != nil {
			return one, err
		}
	}
	after, err := srv.cpu(ctx)
	if err != nil {
		return one, err
	}
	commands, err := srv.commands(ctx)
	if got := commands["evalsha"]["calls"]; err == nil && got != turns*beatProcesses {
		err = fmt.Errorf("%v heartbeats, want %d", got, turns*beatProcesses)
	}
	return oneBeat{
		script: commands["evalsha"]["usec"] / (turns * beatProcesses), cpu: float64((after - before).Microseconds()) / (turns * beatProcesses),
	}, err
}

// idleMessages returns the number of messages a second of an idle hub with limiters.
func idleMessages(ctx context.Context, srv *server, limiters int, lasts time.Duration) (perSecond float64, err error) {
	rdb := srv.client(nil)
	defer rdb.Close()
	h, err := hybrid.NewHub(rdb, patient(hybrid.Config{Hub: hybrid.HubConfig{Prefix: "idle"}}).Hub)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	for i := range limiters {
		if _, err := h.Limiter(hybridlimit.PerSecond(1000), hybrid.Config{Name: fmt.Sprint("limiter-", i)}); err != nil {
			return 0, err
		}
	}
	if err := h.Ready(ctx); err != nil {
		return 0, err
	}
	time.Sleep(500 * time.Millisecond) // between two heartbeats
	before := h.Stats().Messages
	time.Sleep(lasts)
	return float64(h.Stats().Messages-before) / lasts.Seconds(), nil
}

// beatOf returns the row of a fleet, or nil.
func (r *results) beatOf(limiters, groups int) *beatRow {
	for _, row := range r.beats {
		if row.limiters == limiters && row.groups == groups {
			return row
		}
	}
	return nil
}

func beatCPU(b oneBeat) float64 { return b.cpu }

func (r *results) beatMusts() []must {
	one, many := r.beatOf(1, 1), r.beatOf(100, 1)
	if one == nil || many == nil {
		return nil
	}
	return []must{
		{
			what: fmt.Sprintf("Redis CPU: a heartbeat, %d processes with 100 limiters, µs", beatProcesses), want: "≤ 20", bound: atMost(20),
			got: many.cost.median(beatCPU),
		},
		{
			what: "the same / with one limiter", want: "≤ 1.2", bound: atMost(1.2),
			got: many.cost.median(beatCPU) / one.cost.median(beatCPU),
		},
		{
			what: "messages a second of an idle process with 100 limiters", want: "≤ 1", bound: atMost(1),
			got: many.messages,
		},
	}
}

func (r *results) beatPage(b *strings.Builder) {
	b.WriteString("\n## Heartbeats\n\n")
	fmt.Fprintf(b, "%d processes of an idle fleet that know each other. A group is a set of processes with the same limiters. "+
		"The groups of a fleet share one limiter, so that each is counted by all. The times are for one heartbeat, of a "+
		"pipeline. *Of a core* is Redis CPU · messages · processes.\n\n", beatProcesses)
	heads(b, "limiters of a process", "groups", "in the script, µs", "Redis CPU, µs", "messages/s of a process",
		"Redis, of a core")
	for _, row := range r.beats {
		cpu := row.cost.median(beatCPU)
		share := cpu * row.messages * beatProcesses / 1e6
		fmt.Fprintf(b, "| %d | %d | %.1f | %.1f | %s | %.1f %% |\n", row.limiters, row.groups,
			row.cost.median(func(o oneBeat) float64 { return o.script }), cpu, small(row.messages), 100*share)
	}
}
