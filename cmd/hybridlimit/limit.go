package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
)

// limitCommand is the flags of the command limit.
type limitCommand struct {
	*connection
	which
	part              float64
	back, list, force bool
}

// fleetLimit is the command limit.
func fleetLimit(fs *flag.FlagSet, c *connection) job {
	l := &limitCommand{connection: c}
	fs.Float64Var(&l.part, "part", 1, "the `part` of the keys that get the limit, 0.0001 to 1; all processes choose the same keys")
	fs.BoolVar(&l.back, "clear", false, "take the fleet's limit back, or with a key the fleet's limit of this key")
	fs.BoolVar(&l.list, "list", false, "list the keys with a limit of the fleet")
	fs.BoolVar(&l.force, "force", false, "set it also if no process has a limiter of this name, or if the processes have another algorithm")
	l.add(fs)
	var j job
	var to hybrid.FleetLimit
	sets := false
	j.check = func(bad *adapter.Violations, args []string) {
		l.which.check(bad, c.in)
		arguments(bad, args, 0, 1, "must be one limit, or none to show it")
		sets = len(args) == 1
		key := l.given() > 0
		bad.AddIf(l.back && sets, "-clear", l.back, "cannot be used with a limit")
		bad.AddIf(l.part != 1 && !sets, "-part", l.part, "needs a limit")
		bad.AddIf(l.part != 1 && key, "-part", l.part, "cannot be used with a key")
		bad.AddIf(l.list && (sets || l.back || key), "-list", l.list, "cannot be used with a limit, a key or -clear")
		if sets {
			var err error
			to.Limit, err = hybridlimit.ParseLimit(args[0])
			to.Part = l.part
			bad.AddIf(err != nil, "limit", args[0], "is not a limit, such as \"100/s burst 200\"")
		}
	}
	j.invalid = func(err error) error {
		err = errors.Join(err, to.Validate())
		if err != nil && l.given() > 0 && sets {
			return nothing("nothing was changed: " + strings.TrimPrefix(err.Error(), "hybridlimit: "))
		}
		return err
	}
	j.do = func(ctx context.Context, _ []string, out *printer) error {
		h, err := c.hub(c.tags)
		switch {
		case err != nil:
			return err
		case l.list:
			return l.ofKeys(ctx, h, out)
		case l.given() > 0:
			return l.ofKey(ctx, h, to.Limit, sets, out)
		}
		return l.ofLimiter(ctx, h, to, sets, out)
	}
	return j
}

// ofLimiter shows, sets or clears the fleet's limit of the limiter.
func (l *limitCommand) ofLimiter(ctx context.Context, h *hybrid.Hub, to hybrid.FleetLimit, sets bool, out *printer) error {
	was, err := h.FleetLimit(ctx, l.name)
	had := limitSaid(was)
	switch {
	case (sets || l.back) && errors.Is(err, hybridlimit.ErrInvalid):
		had = "a limit that this version does not know"
	case err != nil:
		return err
	}
	answer := &changed{Name: l.name, Since: was.At}
	out.value = answer
	answer.is(was)
	if !sets && !l.back {
		fmt.Fprintf(out, "%s: %s\n", l.name, had)
		if live, err := l.roll(ctx); err == nil && live.limitsSaid(l.name) != "" {
			fmt.Fprintf(out, "The processes have: %s\n", live.limitsSaid(l.name))
		}
		return l.never(ctx, was.At)
	}
	setBefore := !was.At.IsZero()
	if !l.force && (!l.back || !setBefore) { // a limit can be taken back without a process that has it
		if err := l.fits(ctx, to.Limit); err != nil {
			return err
		}
	}
	if err := h.SetFleetLimit(ctx, l.name, to); err != nil {
		return err
	}
	answer.Was, answer.Since = answer.Limit, time.Time{}
	answer.is(to)
	fmt.Fprintf(out, "%s: %s, was: %s\n", l.name, limitSaid(to), had)
	if sets {
		fmt.Fprintln(out, usedUnits)
	}
	return l.heard(ctx, out, answer, "A process with a limit of its own (SetLimit) keeps that one.")
}

// ofKey shows, sets or clears the fleet's limit of one key.
func (l *limitCommand) ofKey(ctx context.Context, h *hybrid.Hub, to hybridlimit.Limit, sets bool, out *printer) error {
	t, err := l.target(ctx, &l.which, "", nil)
	if err != nil {
		return err
	}
	key := t.key
	if key == "" { // a hash in Redis: a hub without the secret takes it as it is
		key = t.digest
		l.connection.secret = ""
		if h, err = l.hub(l.tags); err != nil {
			return err
		}
	}
	all, err := h.FleetKeyLimits(ctx, l.name)
	if err != nil {
		return err
	}
	stored := key
	if t.key != "" {
		stored = l.names().Stored(l.name, key)
	}
	answer := &changed{Name: l.name, Key: key}
	out.value = answer
	had := "no limit of the fleet"
	if at := slices.IndexFunc(all, func(k hybrid.FleetKeyLimit) bool { return k.Key == stored }); at >= 0 {
		had = keyLimitSaid(all[at])
		answer.Limit, answer.Since = limitText(all[at].Limit), all[at].At
	}
	if !sets && !l.back {
		fmt.Fprintf(out, "%s %q: %s\n", l.name, key, had)
		if answer.Limit == "" {
			return nothing(fmt.Sprintf("the fleet has no limit for the key %q of %q", key, l.name))
		}
		return nil
	}
	if l.back && answer.Limit == "" {
		return nothing(fmt.Sprintf("nothing was changed: the fleet has no limit for the key %q of %q", key, l.name))
	}
	if !l.force && !l.back {
		if err := l.fits(ctx, to); err != nil {
			return err
		}
	}
	switch err := h.SetFleetKeyLimit(ctx, l.name, key, to); {
	case errors.Is(err, hybrid.ErrFleetKeysFull):
		return nothing(fmt.Sprintf("-for-key (%q): nothing was changed: the limiter %q has %d keys with a limit of the fleet, at most %d (or 256 KiB); limit -list shows them",
			key, l.name, len(all), hybrid.MaxFleetKeyLimits))
	case errors.Is(err, hybridlimit.ErrInvalid), errors.Is(err, hybridlimit.ErrKeyTooLong):
		return nothing(fmt.Sprintf("-for-key (%.80q): nothing was changed: %v", key, err))
	case err != nil:
		return err
	}
	answer.Was, answer.Limit, answer.Since = answer.Limit, "", time.Time{}
	now := "no limit of the fleet"
	if sets {
		now, answer.Limit = limitText(to), limitText(to)
	}
	fmt.Fprintf(out, "%s %q: %s, was: %s\n", l.name, key, now, had)
	if sets {
		fmt.Fprintln(out, usedUnits)
	}
	return l.heard(ctx, out, answer, "A limit that comes with a call (AllowLimit) wins over it.")
}

// usedUnits says what a raised limit does for a key that is used up.
const usedUnits = "Used units stay used. A used-up window, queue or log has the difference at once. A used-up bucket fills at the new rate; hybridlimit reset fills it at once."

// ofKeys lists the keys with a limit of the fleet.
func (l *limitCommand) ofKeys(ctx context.Context, h *hybrid.Hub, out *printer) error {
	all, err := h.FleetKeyLimits(ctx, l.name)
	if err != nil {
		return err
	}
	answer := make([]changed, len(all))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, k := range all {
		answer[i] = changed{Name: l.name, Key: k.Key, Limit: limitText(k.Limit), Since: k.At}
		fmt.Fprintf(t, "%q\t%s\n", k.Key, keyLimitSaid(k))
	}
	out.value = answer
	if err := t.Flush(); err != nil {
		return err
	}
	if len(all) == 0 {
		return nothing(fmt.Sprintf("the fleet has no limit for any key of %q, with -prefix %s and -tags %d", l.name, l.prefix, l.tags))
	}
	fmt.Fprintf(out, "%d of at most %d keys of %s have a limit of the fleet.\n", len(all), hybrid.MaxFleetKeyLimits, l.name)
	return nil
}

// fits returns an error of type nothing if no process would apply a limit: none has the limiter, all have another
// algorithm, or its rate cannot be leased.
func (l *limitCommand) fits(ctx context.Context, to hybridlimit.Limit) error {
	live, err := l.roll(ctx)
	if err != nil {
		return nil //nolint:nilerr // heard tells the cause
	}
	have := live.of[l.name].limits
	switch {
	case live.processes(l.name) == 0:
		return l.unheard()
	case len(have) == 0 || to == (hybridlimit.Limit{}):
		return nil
	}
	why := ""
	for text := range have {
		limit, leased, err := readSaid(text)
		switch {
		case err == nil && !sameKindOfLimit(limit, to):
			why = fmt.Sprintf("its algorithm is %v, but the processes of %q have %v", to.Algorithm, l.name, limit.Algorithm)
		case err == nil && leased && !static(to) && !ratelease.Fits(to.Rate, to.Period, to.BurstSize()):
			why = fmt.Sprintf("the processes of %q lease rates, and need %s", l.name, ratelease.Range)
		default:
			return nil // also for a limit of another version
		}
	}
	return nothing(fmt.Sprintf("limit (%q): nothing was changed: %s, and would ignore it", limitText(to), why))
}

// sameKindOfLimit reports whether a limiter with one limit can apply the other.
func sameKindOfLimit(have, to hybridlimit.Limit) bool {
	return have.Algorithm == to.Algorithm || static(have) || static(to)
}

// static reports whether a limit counts no units.
func static(l hybridlimit.Limit) bool {
	return l.Algorithm == hybridlimit.AlgUnlimited || l.Algorithm == hybridlimit.AlgBlocked
}

// is sets the limit of the answer.
func (a *changed) is(f hybrid.FleetLimit) {
	a.Limit, a.Part = "", 0
	if f.Limit != (hybridlimit.Limit{}) {
		a.Limit = limitText(f.Limit)
		if f.Part != 1 {
			a.Part = f.Part
		}
	}
}

// limitSaid describes a limit of a fleet and the time at which it was set.
func limitSaid(f hybrid.FleetLimit) string {
	text := "no limit of the fleet"
	if f.Limit != (hybridlimit.Limit{}) {
		text = f.Limit.String()
		if f.Part != 0 && f.Part != 1 {
			text += fmt.Sprintf(" for a part of %g of the keys", f.Part)
		}
	}
	if !f.At.IsZero() {
		text += ", since " + f.At.UTC().Format(time.RFC3339)
	}
	return text
}

// keyLimitSaid describes the fleet's limit of a key.
func keyLimitSaid(k hybrid.FleetKeyLimit) string {
	text := "a limit that this version does not know"
	if k.Limit != (hybridlimit.Limit{}) {
		text = limitText(k.Limit)
	}
	return text + ", since " + k.At.UTC().Format(time.RFC3339)
}
