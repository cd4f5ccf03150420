package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// report is the output of inspect.
type report struct {
	Name      string                `json:"name"`
	Key       string                `json:"key,omitempty"` // unknown for a hashed key that was found by its digest
	Digest    string                `json:"digest"`
	Parts     []partReport          `json:"parts,omitempty"` // of a split key
	RedisKey  string                `json:"redis_key"`
	Sentence  string                `json:"sentence"`
	Limit     string                `json:"limit,omitempty"`      // by which State was computed
	LimitFrom string                `json:"limit_from,omitempty"` // empty: -limit
	State     *hybridlimit.KeyState `json:"state,omitempty"`      // with a limit
	Stored    string                `json:"stored,omitempty"`
	TTL       time.Duration         `json:"ttl_ns"`
	Class     *classReport          `json:"class,omitempty"` // with -floor
	Processes int64                 `json:"processes"`
	Accounts  int64                 `json:"accounts,omitempty"` // more than Processes if the limiter has classes; 0: not known
	Switch    string                `json:"switch"`
	SwitchSet time.Time             `json:"switch_set,omitzero"`

	found  bool // Redis has a state under the key
	leased bool // it is that of a leased rate
}

// partReport is the state of one part of a split key.
type partReport struct {
	RedisKey string `json:"redis_key"`
	Stored   string `json:"stored,omitempty"`
}

// said describes the state in words.
func (p partReport) said() string {
	if s, ok := wire.DecodeState(p.Stored); ok {
		return standing(s)
	}
	if p.Stored != "" {
		return "a state that this version cannot read"
	}
	return "no state: this part has its full limit"
}

// classReport is the part of the state that a class sees.
type classReport struct {
	Floor int64 `json:"floor"` // units that it leaves to others
	Left  int64 `json:"left"`  // units that it could take now
}

// inspect is the command inspect.
func inspect(fs *flag.FlagSet, c *connection) job {
	var limit limitFlag
	fs.Var(&limit, "limit", "the key's `limit`, such as \"100/s burst 200\"; Redis does not store limits, so without it the fleet's limit of the key counts, or the limit that the processes of the limiter say")
	floor := fs.Float64("floor", 0, "with -limit: the `floor` of a class, above 0 and at most 0.5, to see the units left for it")
	tagBy := fs.String("tag-by", "", "the result of Config.TagBy for the key, if Config.TagBy is set")
	key := &which{}
	key.add(fs)
	var j job
	j.check = func(bad *adapter.Violations, args []string) {
		key.argument(bad, args)
		key.check(bad, c.in)
		switch {
		case *floor == 0:
		case !(*floor > 0 && *floor <= 0.5): // also NaN
			bad.Add("-floor", *floor, "must be above 0 and at most 0.5")
		case !limit.set:
			bad.Add("-floor", *floor, "needs -limit")
		case limit.limit.Algorithm == hybridlimit.AlgSlidingLog:
			bad.Add("-floor", *floor, "must be absent: a log has no floors")
		}
	}
	j.do = func(ctx context.Context, _ []string, out *printer) error {
		t, err := c.target(ctx, key, *tagBy, &limit)
		if err != nil {
			return err
		}
		r, err := c.report(ctx, t, limit)
		if err != nil {
			return err
		}
		if *floor > 0 && r.leased {
			return invalid("-floor", *floor, "must be absent: a leased rate has no floors")
		}
		if *floor > 0 && r.State != nil {
			leaves := hybridlimit.Class{Floor: *floor}.Units(limit.limit)
			r.Class = &classReport{Floor: leaves, Left: max(0, r.State.Left-leaves)}
		}
		out.value = r
		if err := r.write(out); err != nil || r.found {
			return err
		}
		if r.Processes == 0 && r.SwitchSet.IsZero() {
			if err := c.unknown(ctx, &key.walk); err != nil {
				return err
			}
		}
		return nothing("no state under this key")
	}
	return j
}

// report reads the state of a key. It writes nothing.
func (c *connection) report(ctx context.Context, t target, limit limitFlag) (r report, err error) {
	r = report{Name: c.name, Key: t.key, Digest: t.digest, RedisKey: t.redisKey}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.readStored(ctx, t, &r); err != nil {
		return r, fmt.Errorf("hybridlimit: %w", err)
	}
	limit.set = limit.set && !r.leased
	if limit.set {
		if s, ok := wire.DecodeState(r.Stored); ok && limit.from != "" && kindOf(s) != kindFor(limit.limit.Algorithm) {
			limit.set = false // the key has a limit of its own, of another algorithm
		}
	}
	if limit.set {
		k, err := c.look(ctx, t.states, t.redisKey, limit.limit)
		if err != nil {
			return r, fmt.Errorf("hybridlimit: %w", err)
		}
		r.State, r.Limit, r.LimitFrom = &k, limitText(limit.limit), limit.from
		if r.found {
			r.Sentence = k.String()
		}
	}
	if r.TTL < 0 {
		r.TTL = 0
	}
	live, err := c.roll(ctx)
	if err != nil {
		return r, fmt.Errorf("hybridlimit: %w", err)
	}
	r.Processes, r.Accounts = live.processes(c.name), live.of[c.name].accounts
	h, err := c.hub(c.tags)
	if err != nil {
		return r, err
	}
	s, at, err := h.FleetSwitch(ctx, c.name)
	r.Switch, r.SwitchSet = s.String(), at
	return r, err
}

// readStored reads the texts of the states of a key.
func (c *connection) readStored(ctx context.Context, t target, r *report) (err error) {
	if len(t.states) == 0 {
		l, err := c.leasedKey(ctx, t)
		if err != nil {
			return err
		}
		if l != nil {
			r.found, r.leased, r.RedisKey, r.Stored, r.TTL, r.Sentence = true, true, l.redisKey, l.text, l.ttl, l.said()
			return nil
		}
		r.Stored, r.TTL, err = c.calls.Stored(ctx, t.redisKey)
		r.found = r.Stored != "" || r.TTL > -2
		r.Sentence = stored(r.Stored, r.found)
		return err
	}
	r.RedisKey, r.TTL = "", -2
	for _, s := range t.states {
		text, ttl, err := c.calls.Stored(ctx, s.redisKey)
		if err != nil {
			return err
		}
		r.Parts = append(r.Parts, partReport{RedisKey: s.redisKey, Stored: text})
		if r.TTL = max(r.TTL, ttl); r.Stored == "" {
			r.Stored = text // for the kind
		}
	}
	r.found = r.Stored != "" || r.TTL > -2
	r.Sentence = fmt.Sprintf("the key is split into %d parts; add -limit to see the units left now", len(t.states))
	if !r.found {
		r.Sentence = stored("", false)
	}
	return nil
}

// stored describes a state in words. Without a limit it cannot give the units left now.
func stored(text string, found bool) string {
	if !found {
		return "no state under this key: it was never used, it has its full limit again, or the limiter uses another key"
	}
	if text == "" {
		return "Redis has a sliding log for this key; add -limit to see the units left now"
	}
	s, ok := wire.DecodeState(text)
	if !ok {
		return "Redis has a state under this key that this version cannot read and would treat as no state"
	}
	return fmt.Sprintf("when last written, the %s; add -limit to see the units left now", standing(s))
}

// standing describes a state in words: "bucket had 7.0 units left, at 2006-01-02T15:04:05Z".
func standing(s wire.State) string {
	level := float64(0)
	if s.Unit > 0 {
		level = float64(s.Level) / float64(s.Unit)
	}
	at := time.UnixMicro(s.Last).UTC().Format(time.RFC3339)
	switch noun := kindOf(s); noun {
	case "bucket":
		if level < 0 {
			return fmt.Sprintf("bucket was %.1f units in debt, at %s", -level, at)
		}
		return fmt.Sprintf("bucket had %.1f units left, at %s", level, at)
	case "queue":
		return fmt.Sprintf("queue had %.1f units in it, at %s", -level, at)
	default:
		return fmt.Sprintf("%s had %d units, and the window before had %d", noun, s.Cur, s.Prev)
	}
}

// write prints the report as text.
func (r report) write(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if r.Key == "" {
		fmt.Fprintf(t, "%s, a hashed key: %s\n", r.Name, r.Sentence)
	} else {
		fmt.Fprintf(t, "%s %q: %s\n", r.Name, r.Key, r.Sentence)
	}
	if r.Limit != "" && r.LimitFrom != "" {
		fmt.Fprintf(t, "  limit\t%s, of %s\n", r.Limit, r.LimitFrom)
	}
	for _, part := range r.Parts {
		fmt.Fprintf(t, "  in Redis\t%q\t%s\n", part.RedisKey, part.said())
	}
	if len(r.Parts) == 0 {
		fmt.Fprintf(t, "  in Redis\t%q\n", r.RedisKey)
	}
	fmt.Fprintf(t, "  key_digest\t%s\n", r.Digest)
	if s, ok := wire.DecodeState(r.Stored); ok && len(r.Parts) == 0 {
		fmt.Fprintf(t, "  debited\t%d units since %s\n", s.Since, time.UnixMicro(max(s.Born, s.Reset)).UTC().Format(time.RFC3339))
		fmt.Fprintf(t, "  leased\t%d units in the ledger\n", s.Out[0]+s.Out[1])
	}
	if r.TTL > 0 {
		fmt.Fprintf(t, "  expires\tin %v, if not used before\n", r.TTL.Round(time.Second))
	}
	if r.Class != nil {
		fmt.Fprintf(t, "  class\tleaves %d units to others, so it has %d left\n", r.Class.Floor, r.Class.Left)
	}
	fmt.Fprintf(t, "  fleet\t%d processes", r.Processes)
	if r.Accounts > r.Processes {
		fmt.Fprintf(t, " with %d accounts, one for each class", r.Accounts)
	}
	fmt.Fprintln(t)
	fmt.Fprintf(t, "  switch\t%s\n", switchSaid(r.Switch, r.SwitchSet))
	return t.Flush()
}
