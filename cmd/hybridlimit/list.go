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
	Name      string `json:"name"`
	Processes int64  `json:"processes"`
	Limits    string `json:"limits,omitempty"` // that its processes say
	Switch    string `json:"switch"`
	Keys      []row  `json:"keys"`
	More      bool   `json:"more"` // there are more keys

	seen  map[string]bool // the Redis keys of Keys: SCAN may return a key twice
	shown map[string]bool // the Redis keys of keys to show; of split keys, another text
	at    map[string]int  // the places of split keys in Keys
	said  string          // its switch, and since when
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
		bad.AddIf(l.show < 1 || l.show > 1000, "-n", l.show, "must be 1 to 1000")
		bad.AddIf(l.limit.set && c.name == "", "-limit", l.limit.String(), "needs -name, because limiters differ in their limits")
	}
	j.do = func(ctx context.Context, _ []string, out *printer) error {
		err := l.find(ctx, c)
		if err == nil {
			err = l.describe(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		return l.print(out, c)
	}
	return j
}

// find scans for the limiters and their keys.
func (l *listing) find(ctx context.Context, c *connection) error {
	if c.name != "" {
		l.found(c.name)
	}
	return l.run(ctx, c, c.names().Pattern(c.name), func(ctx context.Context, node *redis.Client, keys []string) (bool, error) {
		err := l.page(ctx, c, node, keys)
		one := l.limiters[c.name]
		return c.name != "" && one.More && len(one.at) == 0, err // parts of the shown keys may follow
	})
}

// page adds the limiters of the keys on a page, and rows for the keys to show.
func (l *listing) page(ctx context.Context, c *connection, node *redis.Client, keys []string) error {
	return c.rows(ctx, node, keys, func(redisKey string, p lua.Part) bool { return l.takes(c, redisKey, p) }, func(r row) {
		one := l.limiters[r.limiter]
		switch r.how {
		case moved:
			delete(one.seen, r.redisKey) // the scan may find it on the other node
			delete(one.shown, r.redisKey)
			return
		case odd:
			r.Written, r.kind = "unreadable", "state that cannot be read"
		}
		if r.Parts > 0 {
			if at, ok := one.at[r.Key]; ok {
				one.Keys[at].join(r)
				return
			}
			one.at[r.Key] = len(one.Keys)
		}
		one.Keys = append(one.Keys, r)
	})
}

// takes adds the limiter of a key, and selects the key if it is to be shown.
func (l *listing) takes(c *connection, redisKey string, p lua.Part) bool {
	if c.name != "" && p.Limiter != c.name {
		return false
	}
	one, id := l.found(p.Limiter), redisKey
	if p.Of > 0 {
		id = "parts of " + p.Key
	}
	switch {
	case one == nil, p.Key == "" || one.seen[redisKey]:
		return false
	case !one.shown[id] && len(one.shown) == l.show:
		one.More = true
		return false
	}
	one.shown[id], one.seen[redisKey] = true, true
	return true
}

// found returns a limiter, which may be new, and nil if there are too many.
func (l *listing) found(name string) *listed {
	switch {
	case l.limiters[name] != nil:
	case len(l.limiters) == maxListed:
		l.left = true
	default:
		l.limiters[name] = &listed{Name: name, Keys: []row{}, seen: map[string]bool{}, shown: map[string]bool{}, at: map[string]int{}}
	}
	return l.limiters[name]
}

// describe reads the processes and the switch of each limiter, and with -limit the units left for its keys.
func (l *listing) describe(ctx context.Context, c *connection) error {
	live, err := c.roll(ctx)
	if err != nil {
		return err
	}
	for name := range live.of { // limiters without keys
		if c.name == "" {
			l.found(name)
		}
	}
	for name, one := range l.limiters {
		slices.SortFunc(one.Keys, func(a, b row) int { return strings.Compare(a.Key, b.Key) })
		one.Processes, one.Limits = live.processes(name), live.limitsSaid(name)
		h, err := c.hub(cmp.Or(live.of[name].tags, c.tags))
		if err != nil {
			return err
		}
		s, at, err := h.FleetSwitch(ctx, name)
		if err != nil {
			return err
		}
		one.said, one.Switch = switchSaid(s.String(), at), s.String()
		if c.name != "" && at.IsZero() && one.Processes == 0 && len(one.seen) == 0 && !l.cut {
			delete(l.limiters, name) // Redis has nothing of this name
		}
		for i := range one.Keys {
			if err := l.look(ctx, c, &one.Keys[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// look reads the units left for a key, with -limit.
func (l *listing) look(ctx context.Context, c *connection, r *row) error {
	if !l.limit.set {
		return nil
	}
	if r.kind != kindFor(l.limit.limit.Algorithm) {
		r.Now = "- (a " + r.kind + ")" // the limit has another algorithm
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	k, err := c.look(ctx, r.states, r.redisKey, l.limit.limit)
	r.Now = fmt.Sprintf("%d of %d", k.Left, k.Limit.BurstSize())
	return err
}

// print writes each limiter with its keys.
func (l *listing) print(out *printer, c *connection) error {
	all, now := []*listed{}, ""
	if l.limit.set {
		now = "\tLEFT NOW"
	}
	for _, name := range slices.Sorted(maps.Keys(l.limiters)) {
		one := l.limiters[name]
		all = append(all, one)
		limits := ""
		if one.Limits != "" {
			limits = "limit " + one.Limits + ", "
		}
		fmt.Fprintf(out, "%s: %d processes, %sswitch %s\n", name, one.Processes, limits, one.said)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		if len(one.Keys) > 0 {
			fmt.Fprintf(t, "  KEY\tWHEN LAST WRITTEN\tAGO\tEXPIRES IN%s\n", now)
		}
		for _, r := range one.Keys {
			fmt.Fprintf(t, "  %q\t%s\t%s\t%s", r.Key, r.Written, r.ago(), span(r.ttl, time.Second))
			if l.limit.set {
				fmt.Fprintf(t, "\t%s", r.Now)
			}
			fmt.Fprintln(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if one.More {
			fmt.Fprintf(out, "  There are more keys: -n shows more than %d.\n", l.show)
		}
	}
	out.value = all
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
