package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

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
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		for i, k := range taken {
			fields[i], procs[i] = p.HMGet(ctx, k, "", "!"), p.HLen(ctx, k)
		}
		return nil
	})
	errs := []error{clock.Err(), err}
	for i := range taken {
		errs = append(errs, fields[i].Err(), procs[i].Err())
	}
	for _, e := range errs {
		if e != nil && !expected(e) && !gone(e) {
			return e
		}
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
			h.put(found[i])
		case there || expected(fields[i].Err()):
			h.odd++
		}
	}
	return nil
}

// put inserts a key in order if it is among the first.
func (h *holdings) put(one holding) {
	at, _ := slices.BinarySearchFunc(h.all, one, func(a, b holding) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.key, b.key))
	})
	if at < h.show {
		h.all = slices.Insert(h.all, at, one)
		h.all = h.all[:min(len(h.all), h.show)]
	}
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
