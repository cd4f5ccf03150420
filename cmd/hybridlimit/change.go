package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// reset is the command reset.
func reset(fs *flag.FlagSet, c *connection) job {
	var limit limitFlag
	fs.Var(&limit, "limit", "the key's `limit`, such as \"100/s burst 200\", because the new state depends on it; without it the fleet's limit of the key, or the limit that the processes of the limiter say")
	tagBy := fs.String("tag-by", "", "the result of Config.TagBy for the key, if Config.TagBy is set")
	key := &which{}
	key.add(fs)
	var j job
	j.check = func(bad *adapter.Violations, args []string) {
		key.argument(bad, args)
		key.check(bad, c.in)
		bad.AddIf(limit.set && static(limit.limit), "-limit", limit.String(), "must be a limit that counts units")
	}
	j.do = func(ctx context.Context, _ []string, out *printer) error {
		t, err := c.target(ctx, key, *tagBy, &limit)
		if err != nil {
			return err
		}
		if done, err := c.resetLeased(ctx, t, out); err != nil {
			return fmt.Errorf("hybridlimit: %w", err)
		} else if done {
			return nil
		}
		if !limit.set {
			return invalid("-limit", "", "is required: no process says the limit of the limiter")
		}
		before, err := c.resetKey(ctx, t, limit.limit)
		if err != nil {
			return err
		}
		out.value = struct {
			Name   string               `json:"name"`
			Key    string               `json:"key,omitempty"`
			Digest string               `json:"digest"`
			Limit  hybridlimit.Limit    `json:"limit"`
			From   string               `json:"limit_from"`
			Before hybridlimit.KeyState `json:"before"`
		}{c.name, t.key, t.digest, limit.limit, limit.from, before}
		from := ""
		if limit.from != "" {
			from = " (the limit of " + limit.from + ")"
		}
		fmt.Fprintf(out, "%s %q: reset to %s%s; before, it was %v\n", c.name, t.said(), limitText(limit.limit), from, before)
		fmt.Fprintln(out, "Processes may spend units that they have leased for up to four seconds, and deny from memory for some seconds.")
		return nil
	}
	return j
}

// resetKey gives a key its full limit, and returns its state before. It fails if Redis has no state of the key, or one
// of another algorithm than limit: the fleet would treat the new state as no state.
func (c *connection) resetKey(ctx context.Context, t target, limit hybridlimit.Limit) (before hybridlimit.KeyState, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	text, ttl, err := c.calls.Stored(ctx, t.redisKey) // of a split key: of a part that was found
	if err != nil {
		return before, fmt.Errorf("hybridlimit: %w", err)
	}
	if text == "" && ttl < -time.Millisecond { // -1 ms: a key without a TTL
		return before, nothing(fmt.Sprintf("nothing was reset: Redis has no state of the key %q of %q (%s), so the key has its full limit or has another text", t.said(), c.name, t.redisKey))
	}
	have := ""
	if s, ok := wire.DecodeState(text); ok {
		have = kindOf(s)
	} else if text == "" && ttl > 0 {
		have = "log"
	}
	if want := kindFor(limit.Algorithm); have != "" && have != want {
		return before, invalid("-limit", limit.String(), fmt.Sprintf("is a %s, but Redis has a %s under this key", want, have))
	}
	before, err = eachPart(t.states, t.redisKey, limit, func(redisKey string, limit hybridlimit.Limit) (hybridlimit.KeyState, error) {
		return c.calls.Reset(ctx, redisKey, limit)
	})
	if err != nil {
		err = fmt.Errorf("hybridlimit: %w", err)
	}
	return before, err
}

// kindOf returns the kind of algorithm that wrote a state.
func kindOf(s wire.State) string {
	return map[byte]string{'b': "bucket", 'q': "queue", 'f': "fixed window", 's': "sliding window", 'l': "log", 'm': "calendar window"}[s.Kind.Letter()]
}

// kindFor returns the kind of an algorithm.
func kindFor(a hybridlimit.Algorithm) string {
	return cmp.Or(map[hybridlimit.Algorithm]string{
		hybridlimit.AlgLeakyQueue: "queue", hybridlimit.AlgFixedWindow: "fixed window",
		hybridlimit.AlgSlidingWindow: "sliding window", hybridlimit.AlgSlidingLog: "log",
		hybridlimit.AlgCalendarWindow: "calendar window",
	}[a], "bucket")
}

// fleetSwitch is the command switch.
func fleetSwitch(fs *flag.FlagSet, c *connection) job {
	force := fs.Bool("force", false, "set it also if no process has a limiter of this name: processes that start within a day receive it")
	var j job
	var to hybrid.Switch
	j.check = func(bad *adapter.Violations, args []string) {
		arguments(bad, args, 0, 1, "must be one switch, or none to show it")
		if len(args) == 1 {
			var err error
			if to, err = hybrid.ParseSwitch(args[0]); err != nil {
				bad.Add("switch", args[0], `must be "normal", "shadow", "local_only", "allow_all" or "deny_all"`)
			}
		}
	}
	j.do = func(ctx context.Context, args []string, out *printer) error {
		h, err := c.hub(c.tags)
		if err != nil {
			return err
		}
		was, at, err := h.FleetSwitch(ctx, c.name)
		if err != nil {
			return err
		}
		answer := &changed{Name: c.name, Switch: was.String(), Since: at}
		out.value = answer
		if len(args) == 0 {
			fmt.Fprintf(out, "%s: %s\n", c.name, switchSaid(was.String(), at))
			return c.never(ctx, at)
		}
		if force := *force || to == hybrid.SwitchNormal && !at.IsZero(); !force {
			// If the processes cannot be counted, heard tells the cause.
			if live, err := c.roll(ctx); err == nil && live.processes(c.name) == 0 {
				return c.unheard()
			}
		}
		if err := h.SetFleetSwitch(ctx, c.name, to); err != nil {
			return err
		}
		answer.Switch, answer.Was, answer.Since = to.String(), was.String(), time.Time{}
		fmt.Fprintf(out, "%s: %v, was %v\n", c.name, to, was)
		return c.heard(ctx, out, answer, "A process with a switch of its own keeps that one.")
	}
	return j
}

// changed is the answer of switch and limit for -json.
type changed struct {
	Name      string    `json:"name"`
	Key       string    `json:"key,omitempty"`
	Switch    string    `json:"switch,omitempty"`
	Limit     string    `json:"limit,omitempty"` // empty: none of the fleet
	Part      float64   `json:"part,omitempty"`  // of the keys; none: all
	Was       string    `json:"was,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Processes *int64    `json:"processes,omitempty"` // that hear of it; none: not known
}

// unheard is the error of a change that no process would hear.
func (c *connection) unheard() error {
	return nothing(fmt.Sprintf("-name (%q): no process has a limiter of this name now, with -prefix %s and -tags %d, so nothing was changed; "+
		"-force sets it for processes that start within a day", c.name, c.prefix, c.tags))
}

// never returns an error if a switch or a limit was never set and Redis has nothing else of the limiter: the name may
// be misspelled. It returns nil if the Redis user may not count processes, for example because it has only the switch
// rights.
func (c *connection) never(ctx context.Context, at time.Time) error {
	if !at.IsZero() {
		return nil
	}
	live, err := c.roll(ctx)
	switch {
	case err == nil && live.processes(c.name) == 0:
		return c.unknown(ctx, &walk{most: 10 * time.Second, rate: 5000})
	case err != nil && !refused(err):
		return fmt.Errorf("hybridlimit: the processes cannot be counted: %w", err)
	}
	return nil
}

// heard prints how many processes receive a switch or a limit, and which of them keep their own. With a misspelled name
// there are none. It fails if it cannot tell: what hides the heartbeats from it may hide them from the processes too.
// Only a Redis user that lacks the rights to count processes gets a line instead, because the switch rights alone are
// enough to set a switch.
func (c *connection) heard(ctx context.Context, out io.Writer, answer *changed, keep string) error {
	live, err := c.roll(ctx)
	n := live.processes(c.name)
	if err == nil {
		answer.Processes = &n
	}
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
