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
	split map[string]*row // split keys, by limiter and key; their parts are joined
	live  roll
}

// maxSplit bounds the split keys that top joins. The parts of more keys have a row each.
const maxSplit = 10_000

// ranked is the first keys of a limiter, in order.
type ranked struct {
	Name     string `json:"name"`
	Limits   string `json:"limits,omitempty"` // that its processes say
	Keys     int    `json:"keys"`             // of the limiter
	Complete bool   `json:"complete"`         // the scan has seen all keys
	Top      []row  `json:"top"`
}

// top is the command top.
func top(fs *flag.FlagSet, c *connection) job {
	r := &ranking{seen: map[string]bool{}, of: map[string]*ranked{}, split: map[string]*row{}}
	c.unnamed = true
	fs.StringVar(&r.by, "by", "busiest", "`order`: busiest (units per second since the key's state began; of a leased rate, those that processes have), emptiest (units left when the state was last written: the keys that are denied most) or running (permits held, of a limiter of calls in flight; needs -name)")
	fs.IntVar(&r.show, "n", 20, "number of `keys` to show for a limiter, 1 to 1000")
	r.add(fs)
	var j job
	j.check = func(bad *adapter.Violations, args []string) {
		arguments(bad, args, 0, 0, "must be none")
		known := slices.Contains([]string{"busiest", "emptiest", "running"}, r.by)
		bad.AddIf(!known, "-by", r.by, "must be busiest, emptiest or running")
		bad.AddIf(r.by == "running" && c.name == "", "-by", r.by, "needs -name")
		bad.AddIf(r.show < 1 || r.show > 1000, "-n", r.show, "must be 1 to 1000")
		r.check(bad)
	}
	j.do = func(ctx context.Context, _ []string, out *printer) (err error) {
		if r.live, err = c.roll(ctx); err != nil && !refused(err) {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		match, page, print := c.names().Pattern(c.name), r.page, r.print
		if r.by == "running" {
			h := &holdings{ranking: r, all: []holding{}}
			match, page, print = c.names().HeldPattern(c.name), h.page, h.print
		}
		if err := r.run(ctx, c, match, func(ctx context.Context, node *redis.Client, keys []string) (bool, error) {
			return false, page(ctx, c, node, keys)
		}); err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		for _, one := range r.split {
			r.found(*one)
		}
		if err := print(out, c); err != nil {
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
			if r.joins(one) {
				return
			}
			r.found(one)
		}
	})
}

// joins keeps the state of a part of a split key for the end of the scan. It reports false for another key.
func (r *ranking) joins(one row) bool {
	if one.Parts == 0 {
		return false
	}
	id := one.limiter + ":" + one.Key
	have := r.split[id]
	switch {
	case have != nil:
		have.join(one)
	case len(r.split) == maxSplit:
		return false
	default:
		r.split[id] = &one
	}
	return true
}

// found ranks a key.
func (r *ranking) found(one row) {
	r.keys++
	of := r.of[one.limiter]
	if of == nil {
		of = &ranked{Name: one.limiter}
		r.of[one.limiter] = of
	}
	of.Keys++
	of.Top = keep(of.Top, one, r.show, func(a, b row) int {
		return cmp.Or(cmp.Compare(r.rank(b), r.rank(a)), strings.Compare(a.Key, b.Key))
	})
}

// rank is the number to sort by.
func (r *ranking) rank(one row) float64 {
	if r.by == "busiest" {
		return one.Second
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

// print writes the tables and a summary.
func (r *ranking) print(out *printer, c *connection) error {
	all := []*ranked{}
	for _, name := range slices.Sorted(maps.Keys(r.of)) {
		of := r.of[name]
		all = append(all, of)
		of.Limits, of.Complete = r.live.limitsSaid(name), !r.cut && r.moved == 0
		if c.name == "" || of.Limits != "" {
			fmt.Fprintf(out, "%s: limit %s\n", name, cmp.Or(of.Limits, "not known, because no process says it"))
		}
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "KEY\tWHEN LAST WRITTEN\tAGO\tDEBITED\tPER SECOND\tLEASED")
		for _, one := range of.Top {
			fmt.Fprintf(t, "%q\t%s\t%s\t%s\t%.2f\t%d\n", one.Key, one.Written, one.ago(), one.debited(), one.Second, one.Leased)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	out.value = all
	r.summary(out, c)
	return nil
}

// summary writes the number of keys, and the reasons why some are missing.
func (r *ranking) summary(out *printer, c *connection) {
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
}

// holding is one key of a limiter of calls in flight in the output of top.
type holding struct {
	Key       string `json:"key"`
	Permits   int64  `json:"permits"`
	Processes int64  `json:"processes"` // that hold permits
	Refused   bool   `json:"refused"`   // a call, in the last second

	learns time.Duration // until Redis grants permits again
}

// holdings ranks the keys of a limiter of calls in flight: top -by running.
type holdings struct {
	*ranking
	all []holding
}

// page ranks the limiter's keys on a page.
func (h *holdings) page(ctx context.Context, c *connection, node *redis.Client, keys []string) error {
	var found []holding
	var taken []string
	for _, k := range keys {
		if p, ok := c.names().ParseHeld(k); ok && p.Limiter == c.name && !h.seen[k] {
			h.seen[k] = true
			found, taken = append(found, holding{Key: p.Key}), append(taken, k)
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
	now := clock.Val().UnixMicro()
	for i, k := range taken {
		one := &found[i]
		values := append(fields[i].Val(), nil, nil)
		about, there := values[0].(string)
		state, ok := wire.DecodeHolding(about)
		switch {
		case gone(fields[i].Err()) || gone(procs[i].Err()):
			h.moved++
			delete(h.seen, k)
		case ok:
			one.Processes, one.Permits, one.Refused = procs[i].Val()-1, state.Total, state.Scarce > now
			one.learns = time.Duration(state.Learn-now) * time.Microsecond
			if _, marked := values[1].(string); marked {
				one.Processes--
			}
			h.keys++
			h.all = keep(h.all, *one, h.show, func(a, b holding) int {
				return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
			})
		case there || expected(fields[i].Err()):
			h.odd++
		}
	}
	return nil
}

// print writes the table and a summary.
func (h *holdings) print(out *printer, c *connection) error {
	out.value = h.all
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(h.all) > 0 {
		fmt.Fprintln(t, "KEY\tPERMITS HELD\tPROCESSES\tREFUSED\tGRANTS")
	}
	for _, one := range h.all {
		refused, grants := "-", "yes"
		if one.Refused {
			refused = "in the last second"
		}
		if one.learns > 0 {
			grants = "in " + one.learns.Round(time.Millisecond).String()
		}
		fmt.Fprintf(t, "%q\t%d\t%d\t%s\t%s\n", one.Key, one.Permits, one.Processes, refused, grants)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	h.summary(out, c)
	return nil
}
