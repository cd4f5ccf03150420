package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// scan is the flags of top.
type scan struct {
	by   string
	rows int
	most time.Duration
	rate int
}

func top(fs *flag.FlagSet, c *connection) func(ctx context.Context, args []string, out io.Writer) error {
	s := &scan{}
	fs.StringVar(&s.by, "by", "busiest", "busiest (units a second since the key's state began) or emptiest (what is left, when it was last written)")
	fs.IntVar(&s.rows, "n", 20, "how many `keys` to show, 1 to 1000")
	fs.DurationVar(&s.most, "for", 10*time.Second, "longest time to look")
	fs.IntVar(&s.rate, "rate", 5000, "keys of Redis, of whatever kind, to look at in a second, at most")
	return func(ctx context.Context, args []string, out io.Writer) error {
		var bad hybridlimit.Violations
		c.check(&bad)
		arguments(&bad, args, 0, 0, "must be none")
		if s.by != "busiest" && s.by != "emptiest" {
			bad.Add("-by", s.by, "must be busiest or emptiest")
		}
		if s.rows < 1 || s.rows > 1000 {
			bad.Add("-n", s.rows, "must be 1 to 1000")
		}
		if s.most <= 0 {
			bad.Add("-for", s.most, "must be positive")
		}
		if s.rate < 1 {
			bad.Add("-rate", s.rate, "must be at least 1")
		}
		if err := bad.Err("hybridlimit"); err != nil {
			return err
		}
		rdb, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer rdb.Close()
		found, err := s.run(ctx, c, rdb)
		if err != nil {
			return err
		}
		return found.print(out, c, s)
	}
}

// row is one key.
type row struct {
	key    string
	what   string  // what is left or used
	empty  float64 // the larger, the emptier
	since  int64   // units debited
	per    float64 // of them, a second
	leased int64
	age    time.Duration // since it was last written; negative: not known
}

func (r row) rank(by string) float64 {
	if by == "busiest" {
		return r.per
	}
	return r.empty
}

// findings is what a scan has found.
type findings struct {
	rows    []row // the first of them, in order
	looked  int   // keys of Redis
	keys    int   // keys of the limiter
	odd     int   // that this version cannot read
	moved   int   // that lie on another node by now
	cut     bool  // the time was over first
	seen    map[string]bool
	elapsed time.Duration
}

// run goes through all masters, one after the other, page by page.
func (s *scan) run(ctx context.Context, c *connection, rdb redis.UniversalClient) (*findings, error) {
	nodes, err := masters(ctx, c.timeout, rdb)
	if err != nil {
		return nil, fmt.Errorf("hybridlimit: %w", err)
	}
	began, f := time.Now(), &findings{seen: map[string]bool{}}
	for _, node := range nodes {
		if f.cut {
			break
		}
		if err := s.node(ctx, c, node, f, began); err != nil {
			return nil, fmt.Errorf("hybridlimit: %w", err)
		}
	}
	f.elapsed = time.Since(began)
	return f, nil
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

// page is how many keys of Redis one SCAN looks at, at most: it keeps Redis busy
// for less than a millisecond.
const page = 500

// node scans one server.
func (s *scan) node(ctx context.Context, c *connection, node *redis.Client, f *findings, began time.Time) error {
	begin := c.prefix + ":v2:{"
	match := begin + "*}:" + c.name + ":*" // neither prefix nor name can hold what means something in a pattern
	count := min(page, max(1, s.rate/10))
	for cursor := uint64(0); ; {
		bounded, cancel := context.WithTimeout(ctx, c.timeout)
		keys, next, err := node.Scan(bounded, cursor, match, int64(count)).Result()
		if err == nil {
			err = s.page(bounded, c, node, keys, f)
		}
		cancel()
		if err != nil {
			return err
		}
		f.looked += count
		if cursor = next; cursor == 0 {
			return nil
		}
		// What was looked at so far takes so long at the rate.
		wait := time.Duration(float64(f.looked)/float64(s.rate)*float64(time.Second)) - time.Since(began)
		if time.Since(began)+max(0, wait) >= s.most {
			f.cut = true
			return nil
		}
		select {
		case <-time.After(max(0, wait)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// page reads the states of keys.
func (s *scan) page(ctx context.Context, c *connection, node *redis.Client, keys []string, f *findings) error {
	var mine []string
	for _, k := range keys {
		if _, ok := c.callers(k); ok && !f.seen[k] { // a caller's key may look like another limiter's name; SCAN may name one twice
			f.seen[k] = true
			mine = append(mine, k)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	texts, entries := make([]*redis.StringCmd, len(mine)), make([]*redis.IntCmd, len(mine))
	var clock *redis.TimeCmd
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error { // one by one: in a cluster they are of many slots
		clock = p.Time(ctx)
		for i, k := range mine {
			texts[i], entries[i] = p.Get(ctx, k), p.ZCard(ctx, k) // one of the two is of the wrong type
		}
		return nil
	})
	// That is the first error of all: one key of the wrong type hides another's.
	for _, e := range append(errorsOf(texts, entries), clock.Err(), err) {
		if e != nil && !expected(e) && !gone(e) {
			return e
		}
	}
	for i, k := range mine {
		key, _ := c.callers(k)
		r := row{key: key, age: -1}
		switch st, ok := lua.DecodeState(texts[i].Val()); {
		case gone(texts[i].Err()) || gone(entries[i].Err()):
			f.moved++
			delete(f.seen, k) // it may be met there
			continue
		case ok:
			r.of(st, clock.Val())
		case texts[i].Err() == nil:
			f.odd++
			continue
		case entries[i].Err() == nil && entries[i].Val() > 0:
			n := entries[i].Val()
			r.what, r.empty = fmt.Sprintf("%d entries", n), float64(n)
		default:
			continue // gone meanwhile
		}
		f.keys++
		f.keep(r, s)
	}
	return nil
}

// expected says that a key is not there any more, or is of the other type.
func expected(err error) bool {
	return errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE")
}

// gone says that a key has moved to another node since it was named, or is about
// to.
func gone(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN"))
}

func errorsOf(texts []*redis.StringCmd, entries []*redis.IntCmd) (errs []error) {
	for i := range texts {
		errs = append(errs, texts[i].Err(), entries[i].Err())
	}
	return errs
}

// callers is the caller's key out of a key of Redis: of this limiter, and in the
// slot of some tag.
func (c *connection) callers(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, c.prefix+":v2:{")
	if !ok {
		return "", false
	}
	tag, rest, ok := strings.Cut(rest, "}:")
	if !ok || strings.Trim(tag, "0123456789") != "" {
		return "", false
	}
	return strings.CutPrefix(rest, c.name+":")
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
	switch kindOf(s) {
	case "bucket":
		r.what, r.empty = fmt.Sprintf("%.1f left", level), -level
	case "queue":
		r.what, r.empty = fmt.Sprintf("%.1f standing", -level), -level
	default:
		r.what, r.empty = fmt.Sprintf("%d used", s.Cur), float64(s.Cur)
	}
}

// keep puts a row where it belongs, if it is among the first.
func (f *findings) keep(r row, s *scan) {
	at, _ := slices.BinarySearchFunc(f.rows, r, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.rank(s.by), a.rank(s.by)), strings.Compare(a.key, b.key))
	})
	if at >= s.rows {
		return
	}
	f.rows = slices.Insert(f.rows, at, r)
	f.rows = f.rows[:min(len(f.rows), s.rows)]
}

func (f *findings) print(out io.Writer, c *connection, s *scan) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(f.rows) > 0 {
		fmt.Fprintln(t, "KEY\tWHEN LAST WRITTEN\tAGO\tDEBITED\tA SECOND\tLEASED")
	}
	for _, r := range f.rows {
		ago := "-"
		if r.age >= 0 {
			ago = r.age.Round(time.Millisecond).String()
		}
		fmt.Fprintf(t, "%q\t%s\t%s\t%d\t%.2f\t%d\n", r.key, r.what, ago, r.since, r.per, r.leased)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	all := "all there are"
	switch {
	case f.cut:
		all = fmt.Sprintf("not all: -for %v was over at -rate %d", s.most, s.rate)
	case f.moved > 0:
		all = "perhaps not all"
	}
	fmt.Fprintf(out, "%d keys of %s, %s; looked for %v\n", f.keys, c.name, all, f.elapsed.Round(time.Millisecond))
	if f.moved > 0 {
		fmt.Fprintf(out, "%d were on their way to another node: look again when the cluster has come to rest.\n", f.moved)
	}
	if f.odd > 0 {
		fmt.Fprintf(out, "%d more hold something that this version cannot read.\n", f.odd)
	}
	return nil
}
