package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// periodsShown is the number of periods that the command shows: the present one, and those after it.
const periodsShown = 5

// shownPeriod is a period in the answer of the command.
type shownPeriod struct {
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
}

// periods is the command periods.
func periods(*flag.FlagSet, *connection) job {
	var j job
	var limit hybridlimit.Limit
	j.check = func(bad *adapter.Violations, args []string) {
		arguments(bad, args, 1, 1, "must be one limit")
		if len(args) != 1 {
			return
		}
		var err error
		limit, err = hybridlimit.ParseLimit(args[0])
		switch {
		case err != nil:
			bad.Add("LIMIT", args[0], err.Error())
		case limit.Calendar.Unit == hybridlimit.FromUse:
			bad.Add("LIMIT", args[0], "has no periods before it is used: each begins with the first unit after the last one")
		case limit.Algorithm != hybridlimit.AlgCalendarWindow && limit.Algorithm != hybridlimit.AlgFixedWindow:
			bad.Add("LIMIT", args[0], fmt.Sprintf("has no periods: it is a %v", limit.Algorithm))
		}
	}
	j.do = func(_ context.Context, _ []string, out *printer) error {
		shown, err := periodsFrom(limit, time.Now())
		if err != nil {
			return err
		}
		out.value = shown
		for _, p := range shown {
			fmt.Fprintf(out, "%s to %s (%s)\n", p.Begin.Format(time.RFC3339), p.End.Format(time.RFC3339), hours(p.End.Sub(p.Begin)))
		}
		return nil
	}
	return j
}

// periodsFrom returns the period that contains a time, and those after it.
func periodsFrom(l hybridlimit.Limit, at time.Time) (shown []shownPeriod, err error) {
	for range periodsShown {
		begin := at.UTC().Add(-time.Duration(at.UnixNano() % int64(max(l.Period, 1)))) // windows begin at multiples of it
		end := begin.Add(l.Period)
		if l.Algorithm == hybridlimit.AlgCalendarWindow {
			if begin, end, err = l.Calendar.Bounds(at); err != nil {
				return nil, err
			}
		}
		shown, at = append(shown, shownPeriod{begin, end}), end
	}
	return shown, nil
}

// hours returns a length as days and hours: "31 days", "30 days 23h".
func hours(d time.Duration) string {
	const day = 24 * time.Hour
	days, rest := d/day, d%day
	switch {
	case days == 0:
		return rest.String()
	case rest == 0 && days == 1:
		return "1 day"
	case rest == 0:
		return fmt.Sprintf("%d days", days)
	}
	return fmt.Sprintf("%d days %v", days, rest)
}
