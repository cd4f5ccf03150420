package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// idleLimiter is the row of the limiter that gets no calls.
const idleLimiter = "idle limiter"

// idle measures the cost of a limiter that holds keys and gets no calls: as many seconds before the limiter is made as
// after.
func (r *results) idle(ctx context.Context, srv *benchkit.Redis) error {
	m := benchkit.Meter{Redis: srv, Wire: new(benchkit.Wire)}
	rdb := srv.Client(m.Wire)
	if err := errors.Join(rdb.Ping(ctx).Err(), r.seconds(ctx, "no limiter", 0, m)); err != nil {
		return err
	}
	keys := r.scale.idleKeys
	c, err := onRedis(ctx, rdb, "idle", hybridlimit.PerSecond(1000), 2*keys)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.useAll(ctx, fresh(0, keys)); err != nil {
		return err
	}
	time.Sleep(r.scale.settle) // until nothing is owed and leases have ended
	return r.seconds(ctx, idleLimiter, c.stats().Keys, m)
}

// patient adapts a configuration to a shared machine: no call times out, and the breaker stays closed.
func patient(c hybrid.Config) hybrid.Config {
	c.MaxWait, c.Hub.SyncTimeout, c.Hub.Logger = 10*time.Second, 10*time.Second, quiet
	c.Hub.Breaker.Failures, c.Hub.Breaker.FailureRatio, c.Hub.Breaker.SlowCall = 1<<20, -1, -1
	return c
}

// seconds adds the figures of seconds without a decision.
func (r *results) seconds(ctx context.Context, name string, keys int, m benchkit.Meter) error {
	for range r.scale.rounds {
		s, err := m.Spent(ctx, func() error {
			time.Sleep(time.Second)
			return nil
		})
		if err != nil {
			return err
		}
		r.Add("idle", "", name, benchkit.Figures{
			"process": float64(s.Process.Microseconds()) / 1000, "redis": float64(s.Redis.Microseconds()) / 1000, // ms
			"messages": float64(s.Messages), "keys": float64(keys),
		})
	}
	return nil
}

// beatProcesses is the number of processes whose heartbeats are measured.
const beatProcesses = 1000

// beatFleets are the measured fleets. All groups of a fleet share a limiter.
var beatFleets = []struct{ limiters, groups int }{{1, 1}, {30, 1}, {100, 1}, {100, 10}}

// heartbeats measures their cost for Redis in fleets of beatProcesses, by rounds of one heartbeat of each process, and
// the messages of an idle hub.
func (r *results) heartbeats(ctx context.Context, srv *benchkit.Redis) error {
	rdb := srv.Client(nil)
	defer rdb.Close()
	if err := rdb.ScriptLoad(ctx, lua.Fleet.Source).Err(); err != nil {
		return err
	}
	var fleets []*beating
	for i, f := range beatFleets {
		b, err := startBeating(ctx, rdb, fmt.Sprint("fleet", i), f.limiters, f.groups)
		if err != nil {
			return err
		}
		fleets = append(fleets, b)
	}
	if err := benchkit.Turns(0, r.scale.rounds, len(fleets), func(_, i int) error {
		f, err := fleets[i].measure(ctx, srv)
		if err == nil {
			f["groups"] = float64(beatFleets[i].groups)
			r.Add("beat", fmt.Sprint(beatFleets[i].groups), fmt.Sprint(beatFleets[i].limiters), f)
		}
		return err
	}); err != nil {
		return err
	}
	for i, row := range r.Of("beat") {
		messages, err := idleMessages(ctx, srv, beatFleets[i].limiters, r.scale.beats)
		if err != nil {
			return err
		}
		for _, f := range row.Rounds {
			f["messages"] = messages
			f["core"] = f["cpu"] * messages * beatProcesses / 1e6
		}
	}
	return nil
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
		id := groups.ID(of)
		ids, texts, keys = append(ids, id), append(texts, groups.Text(of)), append(keys, names.Group(id))
	}
	b := &beating{rdb: rdb}
	for i := range beatProcesses {
		g := i % parts
		p := protocol.Pulse{
			Group: keys[g], Directory: names.Groups(), Changed: names.Changed(), Names: names.GroupNames(ids[g]),
			Wanted: names.Wanted(), ID: ids[g], Text: texts[g], Process: fmt.Sprintf("%032d", i),
			Expiry: protocol.MaxExpiry, TTL: 24 * time.Hour,
		}
		p.Others = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == keys[g] })
		b.pulses = append(b.pulses, p)
	}
	if err := b.all(ctx); err != nil { // they join, and tell their names
		return nil, err
	}
	return b, b.all(ctx) // they learn the directory
}

// all sends a heartbeat of each process, and notes the answers.
func (b *beating) all(ctx context.Context) error {
	got, err := pipelined(ctx, b.rdb, lua.Fleet, len(b.pulses), func(i int) (keys, argv []string) {
		return protocol.EncodePulse(b.pulses[i])
	})
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

// measure returns the cost of a heartbeat.
func (b *beating) measure(ctx context.Context, srv *benchkit.Redis) (benchkit.Figures, error) {
	const turns, beats = 3, 3 * beatProcesses
	s, err := benchkit.Meter{Redis: srv}.Commands(ctx, func() error {
		for range turns {
			if err := b.all(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && s.Scripts != beats {
		err = fmt.Errorf("%d heartbeats, want %d", s.Scripts, beats)
	}
	return s.Per(beats), err
}

// idleMessages returns the number of messages a second of an idle hub with limiters.
func idleMessages(ctx context.Context, srv *benchkit.Redis, limiters int, lasts time.Duration) (float64, error) {
	rdb := srv.Client(nil)
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
