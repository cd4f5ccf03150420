package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// This file is how the commands look through all keys of Redis, and read states.

// walk is a look at keys of Redis, page by page, at a bounded rate and for a
// bounded time.
type walk struct {
	most time.Duration
	rate int

	looked  int  // keys of Redis
	cut     bool // the time was over first
	elapsed time.Duration
}

func (w *walk) add(fs *flag.FlagSet) {
	fs.DurationVar(&w.most, "for", 10*time.Second, "longest time to look")
	fs.IntVar(&w.rate, "rate", 5000, "keys of Redis, of whatever kind, to look at in a second, at most")
}

func (w *walk) check(bad *hybridlimit.Violations) {
	if w.most <= 0 {
		bad.Add("-for", w.most, "must be positive")
	}
	if w.rate < 1 {
		bad.Add("-rate", w.rate, "must be at least 1")
	}
}

// seen is a page of keys that match. It reports true to look no further.
type seen func(ctx context.Context, node *redis.Client, keys []string) (done bool, err error)

// run goes through all masters, one after the other, until page has seen enough.
func (w *walk) run(ctx context.Context, c *connection, rdb redis.UniversalClient, match string, page seen) error {
	nodes, err := masters(ctx, c.timeout, rdb)
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

// masters are the servers that have keys.
func masters(ctx context.Context, timeout time.Duration, rdb redis.UniversalClient) (nodes []*redis.Client, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch c := rdb.(type) {
	case *redis.Client:
		return []*redis.Client{c}, nil
	case *redis.ClusterClient:
		var mu sync.Mutex // they are called at once
		err = c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, node)
			return nil
		})
		slices.SortFunc(nodes, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	}
	return nodes, err
}

// pageKeys is how many keys of Redis one SCAN looks at, at most: it keeps Redis
// busy for less than a millisecond.
const pageKeys = 500

// node scans one server. It reports true where there is no more to look at.
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
		// What was looked at so far takes so long at the rate.
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

// how is what became of a key between its name and its state.
type how int

const (
	held     how = iota // there is a state
	odd                 // this version cannot read it
	moved               // it lies on another node by now, or is about to
	vanished            // it is gone meanwhile
)

// state is what one key holds.
type state struct {
	how how
	row row // of held; without the key
}

// read reads the states of keys of one server, which are of many slots: so each
// has commands of its own.
func read(ctx context.Context, node *redis.Client, keys []string) ([]state, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	texts, entries, ttls := make([]*redis.StringCmd, len(keys)), make([]*redis.IntCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	var clock *redis.TimeCmd
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		for i, k := range keys {
			texts[i], entries[i], ttls[i] = p.Get(ctx, k), p.ZCard(ctx, k), p.PTTL(ctx, k) // one of the first two is of the wrong type
		}
		return nil
	})
	// That is the first error of all: one key of the wrong type hides another's.
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

// expected reports whether an error says that a key is not there any more, or is
// of the other type.
func expected(err error) bool {
	return errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE")
}

// gone reports whether an error says that a key has moved to another node since
// it was named, or is about to.
func gone(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN"))
}
