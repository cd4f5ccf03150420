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
	"github.com/hybridlimit/hybridlimit/internal/wire"
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

	redisKey, kind string // of list

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

func (r row) rank(by string) float64 {
	if by == "busiest" {
		return r.per
	}
	return r.empty
}

// findings is what a scan has found.
type findings struct {
	rows    []row // the first of them, in order
	keys    int   // keys of the limiter
	odd     int   // that this version cannot read
	moved   int   // that lie on another node by now
	cut     bool  // the time was over first
	seen    map[string]bool
	elapsed time.Duration
}

// run goes through all masters, one after the other, page by page.
func (s *scan) run(ctx context.Context, c *connection, rdb redis.UniversalClient) (*findings, error) {
	w, f := &walk{most: s.most, rate: s.rate}, &findings{seen: map[string]bool{}}
	err := w.run(ctx, c, rdb, c.names().Pattern(c.name), func(ctx context.Context, node *redis.Client, keys []string) (bool, error) {
		return false, s.page(ctx, c, node, keys, f)
	})
	if err != nil {
		return nil, fmt.Errorf("hybridlimit: %w", err)
	}
	f.cut, f.elapsed = w.cut, w.elapsed
	return f, nil
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
	found, err := read(ctx, node, mine)
	if err != nil {
		return err
	}
	for i, k := range mine {
		switch found[i].how {
		case moved:
			f.moved++
			delete(f.seen, k) // it may be met there
			continue
		case odd:
			f.odd++
			continue
		case vanished:
			continue
		}
		r := found[i].row
		r.key, _ = c.callers(k)
		f.keys++
		f.keep(r, s)
	}
	return nil
}

// callers is the caller's key out of a key of Redis of this limiter's states.
func (c *connection) callers(key string) (string, bool) {
	p, ok := c.names().Parse(key)
	return p.Key, ok && p.Limiter == c.name && p.Key != ""
}

// of fills in what a state says.
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
		fmt.Fprintf(t, "%q\t%s\t%s\t%d\t%.2f\t%d\n", r.key, r.what, r.ago(), r.since, r.per, r.leased)
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
