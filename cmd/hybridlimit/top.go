package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// ranking is the flags of top, and the keys that it found.
type ranking struct {
	walk
	by   string
	show int // the number of rows

	rows  []row // the first keys, in order
	keys  int   // the number of the limiter's keys
	odd   int   // the number of keys whose state this version cannot read
	moved int   // the number of keys that were moving to another node
	seen  map[string]bool
}

// top is the command top.
func top(fs *flag.FlagSet, c *connection) func(ctx context.Context, args []string, out io.Writer) error {
	r := &ranking{seen: map[string]bool{}}
	fs.StringVar(&r.by, "by", "busiest", "`order`: busiest (units per second since the key's state began), emptiest (units left when the state was last written) or running (permits held, of a limiter of calls in flight)")
	fs.IntVar(&r.show, "n", 20, "number of `keys` to show, 1 to 1000")
	r.add(fs)
	return func(ctx context.Context, args []string, out io.Writer) error {
		var bad hybridlimit.Violations
		c.check(&bad)
		arguments(&bad, args, 0, 0, "must be none")
		if r.by != "busiest" && r.by != "emptiest" && r.by != "running" {
			bad.Add("-by", r.by, "must be busiest, emptiest or running")
		}
		if r.show < 1 || r.show > 1000 {
			bad.Add("-n", r.show, "must be 1 to 1000")
		}
		r.check(&bad)
		if err := bad.Err("hybridlimit"); err != nil {
			return err
		}
		rdb, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer rdb.Close()
		var found interface {
			find(ctx context.Context, c *connection, rdb redis.UniversalClient) error
			print(out io.Writer, c *connection) error
		} = r
		if r.by == "running" {
			found = &holdings{ranking: r}
		}
		if err := found.find(ctx, c, rdb); err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		return found.print(out, c)
	}
}

// find scans for the limiter's keys.
func (r *ranking) find(ctx context.Context, c *connection, rdb redis.UniversalClient) error {
	return r.run(ctx, c, rdb, c.names().Pattern(c.name), func(ctx context.Context, node *redis.Client, keys []string) (bool, error) {
		return false, r.page(ctx, c, node, keys)
	})
}

// page ranks the limiter's keys on a page.
func (r *ranking) page(ctx context.Context, c *connection, node *redis.Client, keys []string) error {
	return c.rows(ctx, node, keys, r.takes(c), func(how how, one row) {
		switch how {
		case moved:
			r.moved++
			delete(r.seen, one.redisKey) // the scan may find it on the other node
		case odd:
			r.odd++
		default:
			r.keys++
			r.keep(one)
		}
	})
}

// takes selects the limiter's keys, each once.
func (r *ranking) takes(c *connection) func(redisKey string, p lua.Part) bool {
	return func(redisKey string, p lua.Part) bool {
		if p.Limiter != c.name || p.Key == "" || r.seen[redisKey] {
			return false
		}
		r.seen[redisKey] = true
		return true
	}
}

// rank is the number to sort by.
func (r *ranking) rank(one row) float64 {
	if r.by == "busiest" {
		return one.per
	}
	return one.empty
}

// keep inserts a row in order if it is among the first.
func (r *ranking) keep(one row) {
	at, _ := slices.BinarySearchFunc(r.rows, one, func(a, b row) int {
		return cmp.Or(cmp.Compare(r.rank(b), r.rank(a)), strings.Compare(a.key, b.key))
	})
	if at >= r.show {
		return
	}
	r.rows = slices.Insert(r.rows, at, one)
	r.rows = r.rows[:min(len(r.rows), r.show)]
}

// print writes the table and a summary.
func (r *ranking) print(out io.Writer, c *connection) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(r.rows) > 0 {
		fmt.Fprintln(t, "KEY\tWHEN LAST WRITTEN\tAGO\tDEBITED\tPER SECOND\tLEASED")
	}
	for _, one := range r.rows {
		fmt.Fprintf(t, "%q\t%s\t%s\t%d\t%.2f\t%d\n", one.key, one.what, one.ago(), one.since, one.per, one.leased)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return r.summary(out, c)
}

// summary writes the number of keys, and the reasons why some are missing.
func (r *ranking) summary(out io.Writer, c *connection) error {
	all := "complete"
	switch {
	case r.cut:
		all = fmt.Sprintf("incomplete: the scan ended after -for %v at -rate %d", r.most, r.rate)
	case r.moved > 0:
		all = "perhaps incomplete"
	}
	fmt.Fprintf(out, "%d keys of %s, %s; scanned for %v\n", r.keys, c.name, all, r.elapsed.Round(time.Millisecond))
	if r.moved > 0 {
		fmt.Fprintf(out, "%d keys were moving to another node: run this again when the cluster has finished resharding.\n", r.moved)
	}
	if r.odd > 0 {
		fmt.Fprintf(out, "%d more keys have a state that this version cannot read.\n", r.odd)
	}
	return nil
}
