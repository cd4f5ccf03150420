package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// tables returns the tables of all traffic but the attackers, as detectors and as
// limiters: attacks has the strongest attack.
func tables(rows []row) string {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.about == "" })
	var b strings.Builder
	var sources int
	var calls int64
	for _, r := range rows {
		sources, calls = sources+r.sources, calls+r.calls
	}
	fmt.Fprintf(&b, "%s calls of %s sources in %d minutes, each source limited to %d a minute.\n\n",
		benchkit.Thousands(calls, ","), benchkit.Thousands(int64(sources), ","), periods, rate)
	benchkit.Head(&b, 1, "every call counted, %", "above the limit", "sliding: missed", "false alarms", "rate off by",
		"fixed: missed")
	for _, r := range rows {
		sliding, fixed := r.detector[0], r.detector[1]
		above := sliding.calls - sliding.admitted + sliding.over - sliding.under
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.1f | %s |\n", r.name, percent(above, r.calls),
			percent(sliding.over, sliding.calls), percent(sliding.under, sliding.calls), sliding.offBy(), percent(fixed.over, fixed.calls))
	}
	b.WriteByte('\n')
	benchkit.Head(&b, 1, "admitted calls counted, %", "sliding: admitted wrongly", "denied wrongly", "admitted / by a log",
		"most units in a minute", "fixed: admitted / by a log")
	for _, r := range rows {
		sliding, fixed := r.limiter[0], r.limiter[1]
		fmt.Fprintf(&b, "| %s | %s (%s) | %s (%s) | %s | %d | %s |\n", r.name,
			percent(sliding.over, sliding.calls), percent(sliding.farOver, sliding.calls), percent(sliding.under, sliding.calls), percent(sliding.farUnder, sliding.calls),
			percent(sliding.admitted, r.log), sliding.most, percent(fixed.admitted, r.log))
	}
	b.WriteString("\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "- *%s*: %s.\n", r.name, r.about)
	}
	return b.String()
}

// percent formats a share in per cent with three significant digits. It is "0" only if part is 0.
func percent(part, of int64) string {
	p := 100 * float64(part) / float64(max(of, 1))
	switch {
	case part == 0:
		return "0"
	case p < 1:
		return fmt.Sprintf("%.3f", p)
	case p < 10:
		return fmt.Sprintf("%.2f", p)
	default:
		return fmt.Sprintf("%.1f", p)
	}
}
