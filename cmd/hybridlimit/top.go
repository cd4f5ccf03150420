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

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/wire"
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
	j.check = func(bad *adapter.Violations, args []string) {
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
	return c.rows(ctx, node, keys, func(redisKey string, p lua.Part) bool {
		if c.name != "" && p.Limiter != c.name || p.Key == "" || r.seen[redisKey] || r.of[p.Limiter] == nil && len(r.of) == maxListed {
			return false
		}
		r.seen[redisKey] = true // each key once
		return true
	}, func(one row) {
		switch one.how {
		case moved:
			r.moved++
			delete(r.seen, one.redisKey) // the scan may find it on the other node
		case odd:
			r.odd++
		default:
			r.keys++
			if r.of[one.limiter] == nil {
				r.of[one.limiter] = &ranked{}
			}
			of := r.of[one.limiter]
			of.keys++
			of.rows = keep(of.rows, one, r.show, func(a, b row) int {
				return cmp.Or(cmp.Compare(r.rank(b), r.rank(a)), strings.Compare(a.key, b.key))
			})
		}
	})
}

// rank is the number to sort by.
func (r *ranking) rank(one row) float64 {
	if r.by == "busiest" {
		return one.per
	}
	return one.empty
}

// keep inserts a value in order if it is among the first, and drops the last of more than most.
func keep[T any](all []T, one T, most int, order func(a, b T) int) []T {
	at, _ := slices.BinarySearchFunc(all, one, order)
	if at >= most {
		return all
	}
	all = slices.Insert(all, at, one)
	return all[:min(len(all), most)]
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

// holding is one key of a limiter of calls in flight in the output of top.
type holding struct {
	key   string
	procs int64 // that hold permits
	wire.Holding
}

// holdings ranks the keys of a limiter of calls in flight: top -by running.
type holdings struct {
	*ranking
	all []holding
	now time.Time // of Redis
}

// find scans for the limiter's keys.
func (h *holdings) find(ctx context.Context, c *connection) error {
	return h.run(ctx, c, c.names().HeldPattern(c.name), func(ctx context.Context, node *redis.Client, keys []string) (bool, error) {
		return false, h.page(ctx, c, node, keys)
	})
}

// page ranks the limiter's keys on a page.
func (h *holdings) page(ctx context.Context, c *connection, node *redis.Client, keys []string) error {
	var found []holding
	var taken []string
	for _, k := range keys {
		if p, ok := c.names().ParseHeld(k); ok && p.Limiter == c.name && !h.seen[k] {
			h.seen[k] = true
			found, taken = append(found, holding{key: p.Key}), append(taken, k)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	fields, procs := make([]*redis.SliceCmd, len(taken)), make([]*redis.IntCmd, len(taken))
	var clock *redis.TimeCmd
	cmds, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		for i, k := range taken {
			fields[i], procs[i] = p.HMGet(ctx, k, "", "!"), p.HLen(ctx, k)
		}
		return nil
	})
	if err := failed(cmds, err); err != nil {
		return err
	}
	h.now = clock.Val()
	for i, k := range taken {
		values := append(fields[i].Val(), nil, nil)
		about, there := values[0].(string)
		state, ok := wire.DecodeHolding(about)
		switch {
		case gone(fields[i].Err()) || gone(procs[i].Err()):
			h.moved++
			delete(h.seen, k)
		case ok:
			found[i].procs, found[i].Holding = procs[i].Val()-1, state
			if _, marked := values[1].(string); marked {
				found[i].procs--
			}
			h.keys++
			h.all = keep(h.all, found[i], h.show, func(a, b holding) int {
				return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.key, b.key))
			})
		case there || expected(fields[i].Err()):
			h.odd++
		}
	}
	return nil
}

// print writes the table and a summary.
func (h *holdings) print(out *printer, c *connection) error {
	type held struct {
		Key       string `json:"key"`
		Permits   int64  `json:"permits"`
		Processes int64  `json:"processes"`
		Refused   bool   `json:"refused"` // a call, in the last second
	}
	answer := []held{}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(h.all) > 0 {
		fmt.Fprintln(t, "KEY\tPERMITS HELD\tPROCESSES\tREFUSED\tGRANTS")
	}
	now := h.now.UnixMicro()
	for _, one := range h.all {
		refused, grants := "-", "yes"
		if one.Scarce > now {
			refused = "in the last second"
		}
		if one.Learn > now {
			grants = "in " + (time.Duration(one.Learn-now) * time.Microsecond).Round(time.Millisecond).String()
		}
		answer = append(answer, held{one.key, one.Total, one.procs, one.Scarce > now})
		fmt.Fprintf(t, "%q\t%d\t%d\t%s\t%s\n", one.key, one.Total, one.procs, refused, grants)
	}
	out.sets(answer)
	if err := t.Flush(); err != nil {
		return err
	}
	return h.summary(out, c)
}
