package main

import (
	"fmt"
	"io"
	"strings"
)

// introduce says what is going to happen.
func introduce(out io.Writer, c config, s *server) {
	fmt.Fprintf(out, "%s share one limit through Redis: %v.\n", processes(c.Processes), c.limit())
	fmt.Fprintf(out, "They ask for %g times as much on one hot key, and a little on %d other keys.\n", c.Load, tailKeys)
	if from, to, ok := c.outage(); ok {
		what := "miniredis, a Redis in Go"
		if s.real {
			what = "redis-server"
		}
		fmt.Fprintf(out, "Redis is a process of its own, %s (%s). After %v it is killed,\n", s.addr, what, from)
		fmt.Fprintf(out, "after %v it comes back with nothing in it.\n", to)
	} else {
		fmt.Fprintf(out, "Redis is yours, %s: it is left alone, so there is no outage in this run.\n", c.Redis)
	}
	fmt.Fprint(out, `
Who decides on a call:
  lease    this process, from units that it has taken from Redis in advance
  credit   this process, from a few units that Redis hears of afterwards
  redis    Redis, asked for this call
  deny     this process, which knows from Redis when there will be units again
  alone    this process, from its share of the limit, since Redis does not answer
Redis each: commands sent to Redis, per decision.

`)
	fmt.Fprint(out, "Starting; every process has to count the others ...\n")
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// conclude shows the picture and the verdict.
func conclude(out io.Writer, r record, sum *row, v verdict) {
	c := r.config
	seconds := int64(c.Seconds)
	fmt.Fprintf(out, "\nAdmitted on the hot key, units a second (%s were asked for):\n\n%s\n",
		number(sum.offered/seconds), timeline(r))
	fmt.Fprintf(out, "Admitted on the hot key in %d s: %s units (burst + rate × time: %s).\n",
		seconds, number(sum.admitted), number(c.Burst+c.Rate*seconds))
	fmt.Fprintf(out, "Decisions on all keys: %s, with %s commands to Redis for each.\n",
		number(sum.decisions), perDecision(sum.messages, sum.decisions))
	fmt.Fprintf(out, "A decision took %s in the median, %s at the 99th percentile, %s at most.\n\n",
		short(sum.latency.quantile(0.5)), short(sum.latency.quantile(0.99)), short(sum.latency.max))

	fmt.Fprintf(out, "How far above %s/s × time, in the worst of all intervals:\n", number(c.Rate))
	for _, b := range v.bounds {
		relation := "≤"
		if !b.ok() {
			relation = ">"
		}
		fmt.Fprintf(out, "  %s %-18s %7s %s %-7s %s\n", mark(b.ok()), b.what,
			number(int64(b.measured)), relation, number(int64(b.allowed)), b.why)
	}
	for _, cl := range v.claims {
		fmt.Fprintf(out, "  %s %s\n", mark(cl.ok), cl.what)
	}
	for _, n := range v.notes {
		fmt.Fprintf(out, "\n%s\n", n)
	}
	fmt.Fprintf(out, "\n%s\n", v)
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗ FAILED:"
}

// String is the last line.
func (v verdict) String() string {
	if !v.ok() {
		return "FAIL: " + strings.Join(v.failed(), "; ")
	}
	return "PASS"
}
