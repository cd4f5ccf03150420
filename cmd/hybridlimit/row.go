package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/lua"
)

// row is one key.
type row struct {
	key    string
	what   string  // what is left or used
	empty  float64 // the larger, the emptier
	since  int64   // units debited
	per    float64 // of them, a second
	leased int64

	limiter, redisKey, kind string

	age time.Duration // since it was last written; negative: not known
	ttl time.Duration // until Redis forgets it; negative: not known, or never
}

// ago is how long it was not written.
func (r row) ago() string { return span(r.age, time.Millisecond) }

// span is a time, or that it is not known.
func span(d, to time.Duration) string {
	if d < 0 {
		return "-"
	}
	return d.Round(to).String()
}

// of fills in what a state says.
func (r *row) of(s lua.State, now time.Time) {
	r.since, r.leased = s.Since, s.Out[0]+s.Out[1]
	if life := now.Sub(time.UnixMicro(max(s.Born, s.Reset))).Seconds(); life > 0 {
		r.per = float64(s.Since) / max(life, 1)
	}
	level := float64(0)
	if s.Unit > 0 {
		level, r.age = float64(s.Level)/float64(s.Unit), now.Sub(time.UnixMicro(s.Last))
	}
	r.kind = kindOf(s)
	switch r.kind {
	case "bucket":
		r.what, r.empty = fmt.Sprintf("%.1f left", level), -level
	case "queue":
		r.what, r.empty = fmt.Sprintf("%.1f standing", -level), -level
	default:
		r.what, r.empty = fmt.Sprintf("%d used", s.Cur), float64(s.Cur)
	}
}

// callers is the caller's key out of a key of Redis of this limiter's states.
func (c *connection) callers(key string) (string, bool) {
	p, ok := c.names().Parse(key)
	return p.Key, ok && p.Limiter == c.name && p.Key != ""
}

// rows reads the states of the Redis keys on a page that take selects, and calls
// visit with a row for each of them. Keys that vanished meanwhile are left out.
func (c *connection) rows(ctx context.Context, node *redis.Client, keys []string, take func(redisKey string, p lua.Part) bool, visit func(how how, r row)) error {
	var taken []string
	var parts []lua.Part
	for _, k := range keys {
		if p, ok := c.names().Parse(k); ok && take(k, p) {
			taken, parts = append(taken, k), append(parts, p)
		}
	}
	states, err := read(ctx, node, taken)
	if err != nil {
		return err
	}
	for i, k := range taken {
		if states[i].how == vanished {
			continue
		}
		r := states[i].row
		r.limiter, r.key, r.redisKey = parts[i].Limiter, parts[i].Key, k
		visit(states[i].how, r)
	}
	return nil
}
