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
)

// fleetLimit is the command limit.
func fleetLimit(fs *flag.FlagSet, c *connection) func(ctx context.Context, args []string, out io.Writer) error {
	part := fs.Float64("part", 1, "the `part` of the keys that get the limit, 0.0001 to 1; all processes choose the same keys")
	back := fs.Bool("clear", false, "take the fleet's limit back")
	return func(ctx context.Context, args []string, out io.Writer) error {
		var bad hybridlimit.Violations
		c.check(&bad)
		arguments(&bad, args, 0, 1, "must be one limit, or none to show it")
		var to hybrid.FleetLimit
		if len(args) == 1 {
			var err error
			if to.Limit, err = hybridlimit.ParseLimit(args[0]); err != nil {
				bad.Add("limit", args[0], "is not a limit, such as \"100/s burst 200\"")
			}
			to.Part = *part
		}
		if *back && len(args) == 1 {
			bad.Add("-clear", *back, "cannot be used with a limit")
		}
		if *part != 1 && len(args) == 0 {
			bad.Add("-part", *part, "needs a limit")
		}
		if err := errors.Join(bad.Err("hybridlimit"), to.Validate()); err != nil {
			return err
		}
		return c.withHub(ctx, func(rdb redis.UniversalClient, h *hybrid.Hub) error {
			was, err := h.FleetLimit(ctx, c.name)
			had, sets := limitSaid(was), len(args) == 1 || *back
			switch {
			case sets && errors.Is(err, hybridlimit.ErrInvalid):
				had = "a limit that this version does not know"
			case err != nil:
				return err
			case !sets:
				fmt.Fprintf(out, "%s: %s\n", c.name, had)
				return c.never(ctx, rdb, was.At)
			}
			if err := h.SetFleetLimit(ctx, c.name, to); err != nil {
				return err
			}
			fmt.Fprintf(out, "%s: %s, was: %s\n", c.name, limitSaid(to), had)
			return c.heard(ctx, rdb, out, "A process with a limit of its own (SetLimit) keeps that one.")
		})
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
