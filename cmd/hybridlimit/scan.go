package main

import (
	"context"
	"flag"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
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
func (w *walk) check(bad *hybridlimit.Violations) {
	if w.most <= 0 {
		bad.Add("-for", w.most, "must be positive")
	}
	if w.rate < 1 {
		bad.Add("-rate", w.rate, "must be at least 1")
	}
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
