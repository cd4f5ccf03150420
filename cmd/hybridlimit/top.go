package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
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
	show int // the number of rows for a limiter

	of    map[string]*ranked // by limiter
	keys  int                // the number of keys
	odd   int                // the number of keys whose state this version cannot read
	moved int                // the number of keys that were moving to another node
	seen  map[string]bool
	live  roll
}

// ranked is the first keys of a limiter, in order.
type ranked struct {
	rows []row
	keys int // all keys of the limiter
}

// top is the command top.
func top(fs *flag.FlagSet, c *connection) job {
	r := &ranking{seen: map[string]bool{}, of: map[string]*ranked{}}
	c.unnamed = true
	fs.StringVar(&r.by, "by", "busiest", "`order`: busiest (units per second since the key's state began), emptiest (units left when the state was last written: the keys that are denied most) or running (permits held, of a limiter of calls in flight; needs -name)")
	fs.IntVar(&r.show, "n", 20, "number of `keys` to show for a limiter, 1 to 1000")
	r.add(fs)
	var j job
	j.check = func(bad *hybridlimit.Violations, args []string) {
		arguments(bad, args, 0, 0, "must be none")
		if r.by != "busiest" && r.by != "emptiest" && r.by != "running" {
			bad.Add("-by", r.by, "must be busiest, emptiest or running")
		}
		if r.by == "running" && c.name == "" {
			bad.Add("-by", r.by, "needs -name")
		}
		if r.show < 1 || r.show > 1000 {
			bad.Add("-n", r.show, "must be 1 to 1000")
		}
		r.check(bad)
	}
	j.do = func(ctx context.Context, _ []string, out *printer) (err error) {
		if r.live, err = c.roll(ctx); err != nil && !refused(err) {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		var found interface {
			find(ctx context.Context, c *connection) error
			print(out *printer, c *connection) error
		} = r
		if r.by == "running" {
			found = &holdings{ranking: r}
		}
		if err := found.find(ctx, c); err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		if err := found.print(out, c); err != nil {
			return err
		}
		if r.keys+r.odd+r.moved > 0 || r.cut || c.name != "" && r.live.processes(c.name) > 0 || c.name == "" && len(r.live.of) > 0 {
			return nil
		}
		if c.name == "" {
			return nothing(fmt.Sprintf("this Redis has no key of any limiter, with -prefix %s", c.prefix))
		}
		return nothing(fmt.Sprintf("no limiter %q is known to this Redis: no key and no process, with -prefix %s and -tags %d", c.name, c.prefix, c.tags))
	}
	return j
}

// find scans for the keys.
func (r *ranking) find(ctx context.Context, c *connection) error {
	return r.run(ctx, c, c.names().Pattern(c.name), func(ctx context.Context, node *redis.Client, keys []string) (bool, error) {
		return false, r.page(ctx, c, node, keys)
	})
}

// page ranks the keys on a page.
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

// takes selects the keys of the limiter, or of all, each once.
func (r *ranking) takes(c *connection) func(redisKey string, p lua.Part) bool {
	return func(redisKey string, p lua.Part) bool {
		if c.name != "" && p.Limiter != c.name || p.Key == "" || r.seen[redisKey] || r.of[p.Limiter] == nil && len(r.of) == maxListed {
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

// keep inserts a row in order if it is among the first of its limiter.
func (r *ranking) keep(one row) {
	if r.of[one.limiter] == nil {
		r.of[one.limiter] = &ranked{}
	}
	of := r.of[one.limiter]
	of.keys++
	at, _ := slices.BinarySearchFunc(of.rows, one, func(a, b row) int {
		return cmp.Or(cmp.Compare(r.rank(b), r.rank(a)), strings.Compare(a.key, b.key))
	})
	if at >= r.show {
		return
	}
	of.rows = slices.Insert(of.rows, at, one)
	of.rows = of.rows[:min(len(of.rows), r.show)]
}

// topAnswer is the answer of top for -json.
type topAnswer struct {
	Name     string      `json:"name"`
	Limits   string      `json:"limits,omitempty"` // that its processes say
	Keys     int         `json:"keys"`             // of the limiter
	Complete bool        `json:"complete"`         // the scan has seen all keys
	Top      []rowAnswer `json:"top"`
}

// print writes the tables and a summary.
func (r *ranking) print(out *printer, c *connection) error {
	answers := []topAnswer{}
	for _, name := range slices.Sorted(maps.Keys(r.of)) {
		of, limits := r.of[name], r.live.limitsSaid(name)
		a := topAnswer{Name: name, Limits: limits, Keys: of.keys, Complete: !r.cut && r.moved == 0, Top: []rowAnswer{}}
		if c.name == "" || limits != "" {
			fmt.Fprintf(out, "%s: limit %s\n", name, cmp.Or(limits, "not known, because no process says it"))
		}
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "KEY\tWHEN LAST WRITTEN\tAGO\tDEBITED\tPER SECOND\tLEASED")
		for _, one := range of.rows {
			fmt.Fprintf(t, "%q\t%s\t%s\t%d\t%.2f\t%d\n", one.key, one.what, one.ago(), one.since, one.per, one.leased)
			a.Top = append(a.Top, one.answer())
		}
		if err := t.Flush(); err != nil {
			return err
		}
		answers = append(answers, a)
	}
	out.sets(answers)
	return r.summary(out, c)
}

// summary writes the number of keys, and the reasons why some are missing.
func (r *ranking) summary(out *printer, c *connection) error {
	all := "complete"
	switch {
	case r.cut:
		all = fmt.Sprintf("incomplete: the scan ended after -for %v at -rate %d", r.most, r.rate)
	case r.moved > 0:
		all = "perhaps incomplete"
	}
	fmt.Fprintf(out, "%d keys of %s, %s; scanned for %v\n", r.keys, cmp.Or(c.name, "all limiters"), all, r.elapsed.Round(time.Millisecond))
	if r.moved > 0 {
		fmt.Fprintf(out, "%d keys were moving to another node: run this again when the cluster has finished resharding.\n", r.moved)
	}
	if r.odd > 0 {
		fmt.Fprintf(out, "%d more keys have a state that this version cannot read.\n", r.odd)
	}
	return nil
}
