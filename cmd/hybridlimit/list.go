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
	"github.com/hybridlimit/hybridlimit/lua"
)

// listing is the flags of list, and the limiters that it found.
type listing struct {
	walk
	show  int // the number of keys per limiter
	limit limitFlag

	limiters map[string]*listed
	left     bool // there are more limiters than maxListed
}

// listed is one limiter.
type listed struct {
	rows []row
	more bool            // the limiter has more keys than rows
	seen map[string]bool // the Redis keys of rows: SCAN may return a key twice
	now  []string        // with -limit: the units left now, one for each of rows

	processes int64
	limits    string // that its processes say, as text
	said      string // its switch, as text
	set       string // its switch, for -json
}

// maxListed bounds the limiters in the output. It is more than people would name.
const maxListed = 1000

// list is the command list.
func list(fs *flag.FlagSet, c *connection) job {
	l := &listing{limiters: map[string]*listed{}}
	c.unnamed = true
	fs.IntVar(&l.show, "n", 20, "number of `keys` to show per limiter, 1 to 1000; these are the first keys that SCAN returns")
	fs.Var(&l.limit, "limit", "needs -name: the `limit` of the keys, such as \"100/s burst 200\", to show the units left now")
	l.add(fs)
	var j job
	j.check = func(bad *adapter.Violations, args []string) {
		l.check(bad)
		arguments(bad, args, 0, 0, "must be none; -name selects a limiter")
		if l.show < 1 || l.show > 1000 {
			bad.Add("-n", l.show, "must be 1 to 1000")
		}
		if l.limit.set && c.name == "" {
			bad.Add("-limit", l.limit.String(), "needs -name, because limiters differ in their limits")
		}
	}
	j.do = func(ctx context.Context, _ []string, out *printer) error {
		if err := l.find(ctx, c); err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		if err := l.describe(ctx, c); err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		return l.print(out, c)
	}
	return j
}

// find scans for the limiters and their keys.
func (l *listing) find(ctx context.Context, c *connection) error {
	match := c.names().Pattern("")
	if c.name != "" {
		l.limiters[c.name] = &listed{seen: map[string]bool{}}
		match = c.names().Pattern(c.name)
	}
	return l.run(ctx, c, match, func(ctx context.Context, node *redis.Client, keys []string) (bool, error) {
		err := l.page(ctx, c, node, keys)
		return c.name != "" && l.limiters[c.name].more, err
	})
}

// page adds the limiters of the keys on a page, and rows for the keys to show.
func (l *listing) page(ctx context.Context, c *connection, node *redis.Client, keys []string) error {
	return c.rows(ctx, node, keys, func(redisKey string, p lua.Part) bool { return l.takes(c, redisKey, p) }, func(r row) {
		one := l.limiters[r.limiter]
		switch r.how {
		case moved:
			delete(one.seen, r.redisKey) // the scan may find it on the other node
			return
		case odd:
			r.what, r.kind = "unreadable", "state that cannot be read"
		}
		one.rows = append(one.rows, r)
	})
}

// takes adds the limiter of a key, and selects the key if it is to be shown.
func (l *listing) takes(c *connection, redisKey string, p lua.Part) bool {
	if c.name != "" && p.Limiter != c.name {
		return false
	}
	one := l.limiters[p.Limiter]
	if one == nil {
		one = l.found(p.Limiter)
	}
	switch {
	case one == nil, p.Key == "" || one.seen[redisKey]:
		return false
	case len(one.seen) == l.show:
		one.more = true
		return false
	}
	one.seen[redisKey] = true
	return true
}

// found adds a limiter, and returns nil if there are too many.
func (l *listing) found(name string) *listed {
	if len(l.limiters) == maxListed {
		l.left = true
		return nil
	}
	one := &listed{seen: map[string]bool{}}
	l.limiters[name] = one
	return one
}

// describe reads the processes and the switch of each limiter, and with -limit the units left for its keys.
func (l *listing) describe(ctx context.Context, c *connection) error {
	live, err := c.roll(ctx)
	if err != nil {
		return err
	}
	for name := range live.of { // limiters without keys
		if c.name == "" && l.limiters[name] == nil {
			l.found(name)
		}
	}
	for name, one := range l.limiters {
		slices.SortFunc(one.rows, func(a, b row) int { return strings.Compare(a.key, b.key) })
		one.processes, one.limits = live.processes(name), live.limitsSaid(name)
		h, err := c.hub(cmp.Or(live.tags[name], c.tags))
		if err != nil {
			return err
		}
		s, at, err := h.FleetSwitch(ctx, name)
		if err != nil {
			return err
		}
		one.said, one.set = switchSaid(s.String(), at), s.String()
		if c.name != "" && at.IsZero() && one.processes == 0 && len(one.seen) == 0 && !l.cut {
			delete(l.limiters, name) // Redis has nothing of this name
		}
		for _, r := range one.rows {
			if !l.limit.set {
				break
			}
			bounded, cancel := context.WithTimeout(ctx, c.timeout)
			k, err := c.calls.Look(bounded, r.redisKey, l.limit.limit)
			cancel()
			if err != nil {
				return err
			}
			if now := fmt.Sprintf("%d of %d", k.Left, k.Limit.BurstSize()); r.kind == kindFor(l.limit.limit.Algorithm) {
				one.now = append(one.now, now)
			} else {
				one.now = append(one.now, "- (a "+r.kind+")") // the limit has another algorithm
			}
		}
	}
	return nil
}

// listedAnswer is a limiter in the answer for -json.
type listedAnswer struct {
	Name      string      `json:"name"`
	Processes int64       `json:"processes"`
	Limits    string      `json:"limits,omitempty"` // that its processes say
	Switch    string      `json:"switch"`
	Keys      []rowAnswer `json:"keys"`
	More      bool        `json:"more"` // there are more keys
}

// answer returns the answer for -json.
func (l *listing) answer() (out []listedAnswer) {
	out = []listedAnswer{}
	for _, name := range slices.Sorted(maps.Keys(l.limiters)) {
		one := l.limiters[name]
		a := listedAnswer{Name: name, Processes: one.processes, Limits: one.limits, Switch: one.set, Keys: []rowAnswer{}, More: one.more}
		for i, r := range one.rows {
			k := r.answer()
			if i < len(one.now) {
				k.Now = one.now[i]
			}
			a.Keys = append(a.Keys, k)
		}
		out = append(out, a)
	}
	return out
}

// print writes each limiter with its keys.
func (l *listing) print(out *printer, c *connection) error {
	out.sets(l.answer())
	for _, name := range slices.Sorted(maps.Keys(l.limiters)) {
		one := l.limiters[name]
		limits := ""
		if one.limits != "" {
			limits = "limit " + one.limits + ", "
		}
		fmt.Fprintf(out, "%s: %d processes, %sswitch %s\n", name, one.processes, limits, one.said)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		if len(one.rows) > 0 {
			now := ""
			if l.limit.set {
				now = "\tLEFT NOW"
			}
			fmt.Fprintf(t, "  KEY\tWHEN LAST WRITTEN\tAGO\tEXPIRES IN%s\n", now)
		}
		for i, r := range one.rows {
			fmt.Fprintf(t, "  %q\t%s\t%s\t%s", r.key, r.what, r.ago(), span(r.ttl, time.Second))
			if l.limit.set {
				fmt.Fprintf(t, "\t%s", one.now[i])
			}
			fmt.Fprintln(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if one.more {
			fmt.Fprintf(out, "  There are more keys: -n shows more than %d.\n", l.show)
		}
	}
	switch {
	case l.left:
		fmt.Fprintf(out, "There are more than %d limiters: the others are not shown.\n", maxListed)
	case l.cut:
		fmt.Fprintf(out, "The list may be incomplete: the scan ended after -for %v at -rate %d.\n", l.most, l.rate)
	}
	switch {
	case len(l.limiters) > 0 || l.cut:
		return nil
	case c.name != "":
		return nothing(fmt.Sprintf("no limiter %q is known to this Redis: no key, no process and no switch, with -prefix %s and -tags %d", c.name, c.prefix, c.tags))
	}
	return nothing(fmt.Sprintf("this Redis has no key of any limiter, with -prefix %s", c.prefix))
}
