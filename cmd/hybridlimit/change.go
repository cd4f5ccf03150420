package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// This file is the commands that change something: reset and switch.

func reset(fs *flag.FlagSet, c *connection) func(ctx context.Context, args []string, out io.Writer) error {
	var limit limitFlag
	fs.Var(&limit, "limit", "the key's `limit`, such as \"100/s burst 200\" (required): an empty state is of a limit")
	subject := fs.String("subject", "", "what Config.Subject says of the key, where it is set")
	return func(ctx context.Context, args []string, out io.Writer) error {
		var bad hybridlimit.Violations
		c.check(&bad)
		arguments(&bad, args, 1, 1, "must be one key")
		switch {
		case !limit.set:
			bad.Add("-limit", "", "is required")
		case limit.limit.Algorithm == hybridlimit.AlgUnlimited || limit.limit.Algorithm == hybridlimit.AlgBlocked:
			bad.Add("-limit", limit.String(), "counts nothing")
		}
		if err := bad.Err("hybridlimit"); err != nil {
			return err
		}
		rdb, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer rdb.Close()
		if err := c.sameKind(ctx, rdb, args[0], *subject, limit.limit); err != nil {
			return err
		}
		l, err := c.limiter(rdb, limit.limit, *subject)
		if err != nil {
			return err
		}
		defer l.Close()
		before, err := l.Inspect(ctx, args[0])
		if err != nil {
			return err
		}
		if err := l.Reset(ctx, args[0]); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s %q: reset; before, it was %v\n", c.name, args[0], before)
		fmt.Fprintln(out, "Processes may spend what they have leased for a second, and deny from memory for some seconds more.")
		return nil
	}
}

// sameKind refuses a limit whose algorithm is not that of the key's state: a
// reset by it would leave the state of another algorithm, which to the fleet is
// none.
func (c *connection) sameKind(ctx context.Context, rdb redis.UniversalClient, key, subject string, limit hybridlimit.Limit) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	calls, err := runner.New(rdb, c.timeout)
	if err != nil {
		return err
	}
	defer calls.Close()
	_, name := c.slot(key, subject)
	text, ttl, err := calls.Stored(ctx, name)
	if err != nil {
		return fmt.Errorf("hybridlimit: %w", err)
	}
	have := ""
	if s, ok := wire.DecodeState(text); ok {
		have = kindOf(s)
	} else if text == "" && ttl > 0 {
		have = "log"
	}
	if want := kindFor(limit.Algorithm); have != "" && have != want {
		var bad hybridlimit.Violations
		bad.Add("-limit", limit.String(), fmt.Sprintf("is a %s: Redis has a %s of the key", want, have))
		return bad.Err("hybridlimit")
	}
	return nil
}

// kindOf is what a state is of.
func kindOf(s wire.State) string {
	return map[byte]string{'b': "bucket", 'q': "queue", 'f': "fixed window", 's': "sliding window", 'l': "log"}[s.Kind.Letter()]
}

// kindFor is kindOf of an algorithm.
func kindFor(a hybridlimit.Algorithm) string {
	switch a {
	case hybridlimit.AlgLeakyQueue:
		return "queue"
	case hybridlimit.AlgFixedWindow:
		return "fixed window"
	case hybridlimit.AlgSlidingWindow:
		return "sliding window"
	case hybridlimit.AlgSlidingLog:
		return "log"
	}
	return "bucket"
}

func fleetSwitch(_ *flag.FlagSet, c *connection) func(ctx context.Context, args []string, out io.Writer) error {
	return func(ctx context.Context, args []string, out io.Writer) error {
		var bad hybridlimit.Violations
		c.check(&bad)
		arguments(&bad, args, 0, 1, "must be one switch, or none to show it")
		var to hybrid.Switch
		if len(args) == 1 {
			var err error
			if to, err = hybrid.ParseSwitch(args[0]); err != nil {
				bad.Add("switch", args[0], `must be "normal", "shadow", "local_only", "allow_all" or "deny_all"`)
			}
		}
		if err := bad.Err("hybridlimit"); err != nil {
			return err
		}
		rdb, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer rdb.Close()
		h, err := c.hub(rdb)
		if err != nil {
			return err
		}
		defer h.Close()
		was, at, err := h.FleetSwitch(ctx, c.name)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			fmt.Fprintf(out, "%s: %s\n", c.name, switchSaid(was.String(), at))
			return c.never(ctx, rdb, at)
		}
		if err := h.SetFleetSwitch(ctx, c.name, to); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %v, was %v\n", c.name, to, was)
		c.heard(ctx, rdb, out)
		return nil
	}
}

// never is nil unless a switch was never set of a limiter that Redis knows nothing
// of: a name that is misspelled. Who may only switch may not count: nil too.
func (c *connection) never(ctx context.Context, rdb redis.UniversalClient, at time.Time) error {
	if !at.IsZero() {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if n, err := rdb.ZCard(bounded, c.names().Fleet(c.name)).Result(); n > 0 || err != nil {
		return nil
	}
	return c.unknown(ctx, rdb, &walk{most: 10 * time.Second, rate: 5000})
}

// heard says how many processes there are to hear of a switch: a name that is
// misspelled has none. The switch is set by then, so nothing fails here: who may
// only switch may not count.
func (c *connection) heard(ctx context.Context, rdb redis.UniversalClient, out io.Writer) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	n, err := rdb.ZCard(ctx, c.names().Fleet(c.name)).Result()
	if err != nil {
		fmt.Fprintf(out, "It is not known which processes are there to hear of it: %v\n", err)
		return
	}
	if n == 0 {
		fmt.Fprintf(out, "No process shares a limit of this name now, by -prefix %s and -tags %d. Any that starts within a day hears of it.\n", c.prefix, c.tags)
		return
	}
	fmt.Fprintf(out, "%d processes hear of it within a second; one that has a switch of its own keeps that.\n", n)
}

// switchSaid is a switch and since when.
func switchSaid(s string, at time.Time) string {
	if at.IsZero() {
		return s + ", never set"
	}
	return s + ", since " + at.UTC().Format(time.RFC3339)
}
