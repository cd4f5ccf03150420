package main

import (
	"context"
	"errors"
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

// reset is the command reset.
func reset(fs *flag.FlagSet, c *connection) func(ctx context.Context, args []string, out io.Writer) error {
	var limit limitFlag
	fs.Var(&limit, "limit", "the key's `limit`, such as \"100/s burst 200\" (required, because the new state depends on it)")
	subject := fs.String("subject", "", "the result of Config.Subject for the key, if Config.Subject is set")
	return func(ctx context.Context, args []string, out io.Writer) error {
		var bad hybridlimit.Violations
		c.check(&bad)
		arguments(&bad, args, 1, 1, "must be one key")
		switch {
		case !limit.set:
			bad.Add("-limit", "", "is required")
		case limit.limit.Algorithm == hybridlimit.AlgUnlimited || limit.limit.Algorithm == hybridlimit.AlgBlocked:
			bad.Add("-limit", limit.String(), "must be a limit that counts units")
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
		fmt.Fprintln(out, "Processes may spend units that they have leased for one more second, and deny from memory for some seconds.")
		return nil
	}
}

// sameKind returns an error if the key's state belongs to another algorithm than
// limit. A reset would write a state of limit's algorithm, which the fleet would
// treat as no state.
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
		bad.Add("-limit", limit.String(), fmt.Sprintf("is a %s, but Redis has a %s under this key", want, have))
		return bad.Err("hybridlimit")
	}
	return nil
}

// kindOf returns the kind of algorithm that wrote a state.
func kindOf(s wire.State) string {
	return map[byte]string{'b': "bucket", 'q': "queue", 'f': "fixed window", 's': "sliding window", 'l': "log"}[s.Kind.Letter()]
}

// kindFor returns the kind of an algorithm.
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

// fleetSwitch is the command switch.
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
		return c.withHub(ctx, func(rdb redis.UniversalClient, h *hybrid.Hub) error {
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
			return c.heard(ctx, rdb, out, "A process with a switch of its own keeps that one.")
		})
	}
}

// withHub calls do with a hub that has no limiter, and so is no process of the fleet.
func (c *connection) withHub(ctx context.Context, do func(rdb redis.UniversalClient, h *hybrid.Hub) error) error {
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
	return do(rdb, h)
}

// never returns an error if a switch or a limit was never set and Redis has nothing else of
// the limiter: the name may be misspelled. It returns nil if the Redis user may not
// count processes, for example because it has only the switch rights.
func (c *connection) never(ctx context.Context, rdb redis.UniversalClient, at time.Time) error {
	if !at.IsZero() {
		return nil
	}
	live, err := c.roll(ctx, rdb)
	switch {
	case err == nil && live.processes(c.name) == 0:
		return c.unknown(ctx, rdb, &walk{most: 10 * time.Second, rate: 5000})
	case err != nil && !refused(err):
		return fmt.Errorf("hybridlimit: the processes cannot be counted: %w", err)
	}
	return nil
}

// heard prints how many processes receive a switch or a limit, and which of them keep
// their own. With a misspelled name there are none. It fails if it cannot tell: what
// hides the heartbeats from it may hide them from the processes too. Only a Redis user
// that lacks the rights to count processes gets a line instead, because the switch rights
// alone are enough to set a switch.
func (c *connection) heard(ctx context.Context, rdb redis.UniversalClient, out io.Writer, keep string) error {
	live, err := c.roll(ctx, rdb)
	n := live.processes(c.name)
	switch {
	case err != nil && refused(err):
		fmt.Fprintf(out, "The number of processes that receive it is unknown: %v\n", errors.Unwrap(err))
		return nil
	case err != nil:
		return fmt.Errorf("hybridlimit: %s: the change is in Redis, but whether processes hear of it is unknown; "+
			"mend the cause, then repeat the command: %w", c.name, err)
	case n == 0:
		fmt.Fprintf(out, "No process has a limiter of this name now, with -prefix %s and -tags %d. A process that starts within a day receives it.\n", c.prefix, c.tags)
		return nil
	}
	fmt.Fprintf(out, "%d processes receive it within a second, idle ones of a large fleet within ten. %s\n", n, keep)
	return nil
}

// switchSaid describes a switch and the time at which it was set.
func switchSaid(s string, at time.Time) string {
	if at.IsZero() {
		return s + ", never set"
	}
	return s + ", since " + at.UTC().Format(time.RFC3339)
}
