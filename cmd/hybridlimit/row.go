package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// row is one key in the output of list and top.
type row struct {
	key    string
	what   string  // units left, used or queued
	empty  float64 // sort key of top -by emptiest: a larger number is emptier
	since  int64   // units debited since the state began
	per    float64 // units debited per second
	leased int64   // units in the ledger

	limiter, redisKey, kind string

	age time.Duration // time since the state was written; negative: unknown
	ttl time.Duration // time until the state expires; negative: unknown, or never
}

// rowAnswer is a key in an answer for -json.
type rowAnswer struct {
	Key     string  `json:"key"`
	Written string  `json:"when_written"` // units left, used or queued
	Debited int64   `json:"debited"`
	Second  float64 `json:"per_second"`
	Leased  int64   `json:"leased"`
	Now     string  `json:"left_now,omitempty"`
}

// answer returns the row for -json.
func (r row) answer() rowAnswer {
	return rowAnswer{Key: r.key, Written: r.what, Debited: r.since, Second: r.per, Leased: r.leased}
}

// ago returns the time since the state was written, as text.
func (r row) ago() string { return span(r.age, time.Millisecond) }

// span returns a duration as text, or "-" if it is unknown.
func span(d, to time.Duration) string {
	if d < 0 {
		return "-"
	}
	return d.Round(to).String()
}

// of fills in the figures of a state.
func (r *row) of(s wire.State, now time.Time) {
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
		r.what, r.empty = fmt.Sprintf("%.1f queued", -level), -level
	default:
		r.what, r.empty = fmt.Sprintf("%d used", s.Cur), float64(s.Cur)
	}
}

// callers returns the caller's key for a Redis key, if that is a state of the limiter -name.
func (c *connection) callers(key string) (string, bool) {
	p, ok := c.names().Parse(key)
	return p.Key, ok && p.Limiter == c.name && p.Key != ""
}

// rows reads the states of the Redis keys on a page that take selects, and calls visit with a row for each of them. It
// leaves out keys that vanished meanwhile.
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

// how is the result of reading the state of a key that SCAN returned.
type how int

const (
	held     how = iota // the key has a state
	odd                 // this version cannot read the state
	moved               // the key has moved to another node, or is moving
	vanished            // the key no longer exists
)

// state is the state of one key.
type state struct {
	how how
	row row // complete for held, except for the names
}

// read reads the states of keys on one server. The keys are in many slots, so that each needs commands of its own.
func read(ctx context.Context, node *redis.Client, keys []string) ([]state, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	texts, entries, ttls := make([]*redis.StringCmd, len(keys)), make([]*redis.IntCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	var clock *redis.TimeCmd
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		for i, k := range keys {
			texts[i], entries[i], ttls[i] = p.Get(ctx, k), p.ZCard(ctx, k), p.PTTL(ctx, k) // GET or ZCARD fails, depending on the type
		}
		return nil
	})
	// The pipeline returns only its first error: an expected one may hide another.
	errs := []error{clock.Err(), err}
	for i := range keys {
		errs = append(errs, texts[i].Err(), entries[i].Err(), ttls[i].Err())
	}
	for _, e := range errs {
		if e != nil && !expected(e) && !gone(e) {
			return nil, e
		}
	}
	states := make([]state, len(keys))
	for i := range keys {
		s := &states[i]
		s.row.age, s.row.ttl = -1, ttls[i].Val()
		switch st, ok := wire.DecodeState(texts[i].Val()); {
		case gone(texts[i].Err()) || gone(entries[i].Err()) || gone(ttls[i].Err()):
			s.how = moved
		case ok:
			s.row.of(st, clock.Val())
		case texts[i].Err() == nil:
			s.how = odd
		case entries[i].Err() == nil && entries[i].Val() > 0:
			n := entries[i].Val()
			s.row.kind, s.row.what, s.row.empty = "log", fmt.Sprintf("%d entries", n), float64(n)
		default:
			s.how = vanished
		}
	}
	return states, nil
}

// expected reports whether an error means that a key no longer exists, or is of the other type.
func expected(err error) bool {
	return errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE")
}

// gone reports whether an error means that a key has moved to another node since SCAN returned it, or is moving.
func gone(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN"))
}
