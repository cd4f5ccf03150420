package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// walk is a scan of the keys of Redis: page by page, at a bounded rate and for a bounded time.
type walk struct {
	most time.Duration // -for
	rate int           // -rate, in keys per second

	looked  int  // the number of keys scanned
	cut     bool // the scan stopped because most was over
	elapsed time.Duration
}

// add adds the flags of a walk.
func (w *walk) add(fs *flag.FlagSet) {
	fs.DurationVar(&w.most, "for", 10*time.Second, "longest time to scan")
	fs.IntVar(&w.rate, "rate", 5000, "most keys to scan per second, including keys of other programs")
}

// check adds a violation for each invalid flag.
func (w *walk) check(bad *adapter.Violations) {
	bad.AddIf(w.most <= 0, "-for", w.most, "must be positive")
	bad.AddIf(w.rate < 1, "-rate", w.rate, "must be at least 1")
}

// seen receives a page of matching keys. done ends the scan.
type seen func(ctx context.Context, node *redis.Client, keys []string) (done bool, err error)

// run scans all masters, one after the other, until page is done.
func (w *walk) run(ctx context.Context, c *connection, match string, page seen) error {
	nodes, err := c.masters(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, node := range nodes {
		done, err := w.node(ctx, c, node, match, began, page)
		if w.elapsed = time.Since(began); done || err != nil {
			return err
		}
	}
	return nil
}

// masters returns the servers that have keys.
func (c *connection) masters(ctx context.Context) (nodes []*redis.Client, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	switch rdb := c.rdb.(type) {
	case *redis.Client:
		return []*redis.Client{rdb}, nil
	case *redis.ClusterClient:
		var mu sync.Mutex // ForEachMaster calls concurrently
		err = rdb.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, node)
			return nil
		})
		slices.SortFunc(nodes, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	}
	return nodes, err
}

// pageKeys is the largest COUNT of a SCAN. Such a SCAN keeps Redis busy for less than a millisecond.
const pageKeys = 500

// node scans one server. done is true if the whole scan is over.
func (w *walk) node(ctx context.Context, c *connection, node *redis.Client, match string, began time.Time, page seen) (done bool, err error) {
	count := min(pageKeys, max(1, w.rate/10))
	for cursor := uint64(0); ; {
		bounded, cancel := context.WithTimeout(ctx, c.timeout)
		keys, next, err := node.Scan(bounded, cursor, match, int64(count)).Result()
		if err == nil {
			done, err = page(bounded, node, keys)
		}
		cancel()
		if done || err != nil {
			return true, err
		}
		w.looked += count
		if cursor = next; cursor == 0 {
			return false, nil
		}
		// Wait until the keys scanned so far are within the rate.
		wait := time.Duration(float64(w.looked)/float64(w.rate)*float64(time.Second)) - time.Since(began)
		if time.Since(began)+max(0, wait) >= w.most {
			w.cut = true
			return true, nil
		}
		select {
		case <-time.After(max(0, wait)):
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// row is one key in the output of list and top.
type row struct {
	Key     string  `json:"key"`
	Written string  `json:"when_written"` // units left, used or queued
	Debited int64   `json:"debited"`      // units since the state began
	Second  float64 `json:"per_second"`   // units debited
	Leased  int64   `json:"leased"`       // units in the ledger
	Now     string  `json:"left_now,omitempty"`
	Parts   int     `json:"parts,omitempty"` // of a split key; the other figures are of those that have a state
	// Rate: the rate of the key is leased. Second is then the rate that processes have, and Leased the most units that
	// they have in hand. The units debited are not known.
	Rate bool `json:"leased_rate,omitempty"`

	limiter, redisKey, kind string
	amount                  float64     // units left, used or queued
	states                  []partState // of a split key: of all its parts
	found                   int         // number of those that have a state

	how   how           // the other fields are complete for held only
	empty float64       // sort key of top -by emptiest: a larger number is emptier
	age   time.Duration // since the state was written; negative: unknown
	ttl   time.Duration // until the state expires; negative: unknown, or never
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
	r.Debited, r.Leased = s.Since, s.Out[0]+s.Out[1]
	if life := now.Sub(time.UnixMicro(max(s.Born, s.Reset))).Seconds(); life > 0 {
		r.Second = float64(s.Since) / max(life, 1)
	}
	level := float64(0)
	if s.Unit > 0 {
		level, r.age = float64(s.Level)/float64(s.Unit), now.Sub(time.UnixMicro(s.Last))
	}
	r.kind = kindOf(s)
	switch r.kind {
	case "bucket":
		r.amount, r.empty = level, -level
	case "queue":
		r.amount, r.empty = -level, -level
	default:
		r.amount, r.empty = float64(s.Cur), float64(s.Cur)
	}
	r.write()
}

// ofRate fills in the figures of a state of leased rates.
func (r *row) ofRate(s wire.RateState, now time.Time) {
	r.kind, r.Rate, r.age = "leased rate", true, now.Sub(time.UnixMicro(s.Last))
	r.amount = float64(s.Level) / ratelease.Micro
	r.empty, r.Second, r.Leased = -r.amount, float64(s.Leased)/ratelease.Micro, s.Depth/ratelease.Micro
	r.write()
}

// debited returns the units debited, as text.
func (r row) debited() string {
	if r.Rate {
		return "-"
	}
	return strconv.FormatInt(r.Debited, 10)
}

// write sets the text of the units.
func (r *row) write() {
	switch r.kind {
	case "bucket", "leased rate":
		r.Written = fmt.Sprintf("%.1f left", r.amount)
	case "queue":
		r.Written = fmt.Sprintf("%.1f queued", r.amount)
	case "log":
		r.Written = fmt.Sprintf("%.0f entries", r.amount)
	default:
		r.Written = fmt.Sprintf("%.0f used", r.amount)
	}
	if r.Parts > 0 {
		r.Written += fmt.Sprintf(" in %d of %d parts", r.found, r.Parts)
	}
}

// callers returns what a Redis key says, if it is a state of the limiter -name.
func (c *connection) callers(key string) (lua.Part, bool) {
	p, ok := c.names().Parse(key)
	return p, ok && p.Limiter == c.name && p.Key != ""
}

// rows reads the states of the Redis keys on a page that take selects, and calls visit with a row for each of them. It
// leaves out keys that vanished meanwhile.
func (c *connection) rows(ctx context.Context, node *redis.Client, keys []string, take func(redisKey string, p lua.Part) bool, visit func(r row)) error {
	var taken []string
	var of []lua.Part
	for _, k := range keys {
		if p, ok := c.names().Parse(k); ok && take(k, p) {
			taken, of = append(taken, k), append(of, p)
		}
	}
	rows, err := read(ctx, node, taken)
	for i, r := range rows {
		if r.how != vanished {
			r.limiter, r.Key, r.redisKey = of[i].Limiter, of[i].Key, taken[i]
			if split := of[i].Of; split > 0 && r.how == held {
				r.Parts, r.found, r.states = split, 1, c.statesWith(of[i])
				r.write()
			}
			visit(r)
		}
	}
	return err
}

// how is the result of reading the state of a key that SCAN returned.
type how int

const (
	held     how = iota // the key has a state
	odd                 // this version cannot read the state
	moved               // the key has moved to another node, or is moving
	vanished            // the key no longer exists
)

// read reads the states of keys on one server, without the names of the rows. The keys are in many slots, so that each
// needs commands of its own.
func read(ctx context.Context, node *redis.Client, keys []string) ([]row, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	texts, entries, ttls := make([]*redis.StringCmd, len(keys)), make([]*redis.IntCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	var clock *redis.TimeCmd
	cmds, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		for i, k := range keys {
			texts[i], entries[i], ttls[i] = p.Get(ctx, k), p.ZCard(ctx, k), p.PTTL(ctx, k) // GET or ZCARD fails, depending on the type
		}
		return nil
	})
	if err := failed(cmds, err); err != nil {
		return nil, err
	}
	rows := make([]row, len(keys))
	for i := range keys {
		r := &rows[i]
		r.age, r.ttl = -1, ttls[i].Val()
		switch st, ok := wire.DecodeState(texts[i].Val()); {
		case gone(texts[i].Err()) || gone(entries[i].Err()) || gone(ttls[i].Err()):
			r.how = moved
		case ok:
			r.of(st, clock.Val())
		case texts[i].Err() == nil:
			if rate, ok := wire.DecodeRate(texts[i].Val()); ok {
				r.ofRate(rate, clock.Val())
			} else {
				r.how = odd
			}
		case entries[i].Err() == nil && entries[i].Val() > 0:
			n := entries[i].Val()
			r.kind, r.amount, r.empty = "log", float64(n), float64(n)
			r.write()
		default:
			r.how = vanished
		}
	}
	return rows, nil
}

// failed returns the first error of a pipeline that is not about a single key. The pipeline itself returns only its
// first error: an expected one may hide another.
func failed(cmds []redis.Cmder, err error) error {
	errs := []error{err}
	for _, cmd := range cmds {
		errs = append(errs, cmd.Err())
	}
	for _, e := range errs {
		if e != nil && !expected(e) && !gone(e) {
			return e
		}
	}
	return nil
}

// expected reports whether an error means that a key no longer exists, or is of the other type.
func expected(err error) bool {
	return errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE")
}

// gone reports whether an error means that a key has moved to another node since SCAN returned it, or is moving.
func gone(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN"))
}
