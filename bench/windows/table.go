package main

import (
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

func name(w algo.Window) string {
	if w.Sliding {
		return "sliding"
	}
	return "fixed"
}

// tables returns the tables of all traffic: as detectors, and as limiters.
func tables(rows []row) string {
	var b strings.Builder
	var sources int
	var calls int64
	for _, r := range rows {
		sources, calls = sources+r.sources, calls+r.calls
	}
	fmt.Fprintf(&b, "%s calls of %s sources in %d minutes, each source limited to %d a minute.\n\n", count(calls), count(int64(sources)), periods, rate)
	b.WriteString("| every call counted | calls | above the limit | window | missed | false alarms | rate off by |\n|---|--:|--:|---|--:|--:|--:|\n")
	for _, r := range rows {
		for k, s := range r.detector {
			above := s.calls - s.admitted + s.over - s.under
			fmt.Fprintf(&b, "%s %s | %s | %s | %.1f %% |\n", lead(k, r, above), name(kinds[k]),
				percent(s.over, s.calls), percent(s.under, s.calls), 100*s.off/float64(s.calls))
		}
	}
	b.WriteString("\n| admitted calls counted | calls | denied by a log | window | admitted wrongly | denied wrongly | rate off by | admitted / by a log | most in a minute |\n" +
		"|---|--:|--:|---|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		for k, s := range r.limiter {
			fmt.Fprintf(&b, "%s %s | %s (%s) | %s (%s) | %.1f %% | %s | %d |\n", lead(k, r, r.calls-r.log), name(kinds[k]),
				percent(s.over, s.calls), percent(s.farOver, s.calls), percent(s.under, s.calls), percent(s.farUnder, s.calls),
				100*s.off/float64(s.calls), percent(s.admitted, r.log), s.most)
		}
	}
	b.WriteString("\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "- *%s*: %s.\n", r.name, r.about)
	}
	return b.String()
}

// lead returns the first cells of a row's k-th line.
func lead(k int, r row, part int64) string {
	if k > 0 {
		return "| | | |"
	}
	return fmt.Sprintf("| %s | %s | %s |", r.name, count(r.calls), percent(part, r.calls))
}

// percent formats a share with three significant digits. It is "0" only if part
// is 0.
func percent(part, of int64) string {
	p := 100 * float64(part) / float64(max(of, 1))
	switch {
	case part == 0:
		return "0"
	case p < 1:
		return fmt.Sprintf("%.3f %%", p)
	case p < 10:
		return fmt.Sprintf("%.2f %%", p)
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// count formats n with separated thousands.
func count(n int64) string { return benchkit.Thousands(n, ",") }
