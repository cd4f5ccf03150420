package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
)

// board prints the table: a line for each second, with the events before it.
type board struct {
	out    io.Writer
	config config
	second int // of the next line
	rows   map[int]*row
	events []told
	sum    row // of the whole run
}

// row sums up what the processes report.
type row struct {
	reports             int
	offered, admitted   int64 // on the hot key
	decisions, messages int64
	open                int // processes whose breaker is not closed
	sources             [hybridlimit.NumSources]int64
	latency             histogram
}

func (w *row) add(r report) {
	w.reports++
	w.offered += r.Offered
	w.decisions += r.Decisions
	w.messages += r.Messages
	for _, c := range r.Cells {
		w.admitted += c.Shared + c.Alone
	}
	if r.Breaker != breaker.Closed.String() {
		w.open++
	}
	for s, n := range r.Sources {
		w.sources[s] += n
	}
	w.latency.merge(r.Latency)
}

func newBoard(out io.Writer, c config) *board {
	return &board{out: out, config: c, second: 1, rows: map[int]*row{}}
}

const tableHead = `
    │  hot key, per second  │ all keys Redis │ a decision takes  │ breaker │ who decided, in %
  s │ offered admits  limit │ decided   each │   p50   p99   max │         │ lease cred redis deny alone
────┼───────────────────────┼────────────────┼───────────────────┼─────────┼────────────────────────────
`

func (b *board) header() { fmt.Fprint(b.out, tableHead) }

// report adds a process's report, and prints the line that it completes.
func (b *board) report(r report) {
	b.sum.add(r)
	if b.rows[r.Second] == nil {
		b.rows[r.Second] = &row{}
	}
	b.rows[r.Second].add(r)
	for {
		w := b.rows[b.second]
		if w == nil || w.reports < b.config.Processes {
			return
		}
		b.flush()
		fmt.Fprintln(b.out, b.line(b.second, w))
		delete(b.rows, b.second)
		b.second++
	}
}

// shown is the columns of who decided, with their widths.
var shown = []struct {
	source hybridlimit.Source
	width  int
}{
	{hybridlimit.SourceLease, 6},
	{hybridlimit.SourceCredit, 5},
	{hybridlimit.SourceRedis, 6},
	{hybridlimit.SourceDenyCache, 5},
	{hybridlimit.SourceFallback, 6},
}

func (b *board) line(second int, w *row) string {
	state := "closed"
	if w.open > 0 {
		state = fmt.Sprintf("%d open", w.open)
	}
	line := fmt.Sprintf("%3d │ %7s %6s %6s │ %7s %6s │ %5s %5s %5s │ %-7s │", second,
		number(w.offered), number(w.admitted), number(b.config.Rate), number(w.decisions),
		perDecision(w.messages, w.decisions), short(w.latency.quantile(0.5)), short(w.latency.quantile(0.99)),
		short(w.latency.max), state)
	for _, s := range shown {
		line += fmt.Sprintf("%*s", s.width, percent(w.sources[s.source], w.decisions))
	}
	if n := w.sources[hybridlimit.SourceTimeout]; n > 0 { // ModeStrict denies rather than decide alone
		line += "  timeout " + percent(n, w.decisions)
	}
	return line
}

// told is an event and whose it is: a process's, or 0 for this program's own.
type told struct {
	event
	process int
}

// event notes what has happened, to be shown before the next line.
func (b *board) event(e event, process int) { b.events = append(b.events, told{e, process}) }

// flush prints the events, those of several processes that say the same as one.
func (b *board) flush() {
	slices.SortStableFunc(b.events, func(x, y told) int { return int(x.At - y.At) })
	for len(b.events) > 0 {
		first := b.events[0]
		var same, rest []told
		for _, e := range b.events {
			if e.Text == first.Text && (e.process == 0) == (first.process == 0) {
				same = append(same, e)
			} else {
				rest = append(rest, e)
			}
		}
		b.events = rest
		fmt.Fprintf(b.out, "%s ► %s%s\n", when(first.At, same[len(same)-1].At), b.who(same), first.Text)
		if first.Cause != "" {
			fmt.Fprintf(b.out, "%10s (%s)\n", "", first.Cause)
		}
	}
}

// when is "6.0s", or "9.1-9.7s".
func when(from, to time.Duration) string {
	first, last := fmt.Sprintf("%.1f", max(from, 0).Seconds()), fmt.Sprintf("%.1fs", max(to, 0).Seconds())
	if first+"s" == last {
		first = ""
	} else {
		first += "-"
	}
	return fmt.Sprintf("%8s", first+last)
}

func (b *board) who(events []told) string {
	var who []int
	for _, e := range events {
		who = append(who, e.process)
	}
	slices.Sort(who)
	who = slices.Compact(who)
	switch {
	case who[0] == 0:
		return ""
	case len(who) == 1:
		return "process " + list(who) + ": "
	case len(who) == b.config.Processes:
		return fmt.Sprintf("all %d processes: ", len(who))
	}
	return "processes " + list(who) + ": "
}
