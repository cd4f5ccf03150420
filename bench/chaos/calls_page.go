package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// callsAtOnce is the number of rows that are played at once. A row leaves a processor idle for most of the time.
const callsAtOnce = 4

// playAllCalls plays rows, and returns their outcomes in the same order.
func playAllCalls(ctx context.Context, rows []callsRow) (out []*callsOutcome, err error) {
	all, errs := make([]*callsOutcome, len(rows)), make([]error, len(rows))
	var (
		players sync.WaitGroup
		screen  sync.Mutex
		free    = make(chan struct{}, callsAtOnce)
	)
	for i, row := range rows {
		free <- struct{}{}
		players.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			o, err := playCalls(ctx, row)
			screen.Lock()
			defer screen.Unlock()
			if all[i] = o; err != nil {
				errs[i] = err
				fmt.Println("FAILED:", err)
				return
			}
			o.progress(os.Stdout, time.Since(began))
			if n := len(o.verdict.violations); n > 0 {
				errs[i] = fmt.Errorf("%s: %d violations", row.where(), n)
			}
		})
	}
	players.Wait()
	for _, o := range all {
		if o != nil {
			out = append(out, o)
		}
	}
	return out, errors.Join(errs...)
}

// callsHead is the text before the table of calls in flight in the record.
const callsHead = `
## Calls in flight

Measured by: ` + "`cd bench/chaos && go run . -run 'calls in flight'`" + `. Each row is one fault under a limit of ` + "`12 concurrent`" + `. Three processes have eight goroutines each. A goroutine waits for a permit for at most 200 ms, and a call lasts 5 to 65 ms, or 3 s. Each process writes the begin and the end of each call, and the moments are compared after the run. Four rows are played at the same time.

- *calls*: begun by all processes together. *By the fallback*: the part of them that a fallback admitted.
- *at once*: the largest number of calls that ran at one moment / the permits. Calls that a fallback admitted and outlived calls are not counted. The guarantee allows more after an eviction and after a failover: up to the number that the search of [decision 0051](../docs/decisions/0051-permits-by-membership.md) found.
- *fallback at once*: the largest number of calls of one process that ran at one moment by the fallback / its share.
- *outlived*: calls that ran on after the membership of their process had ended, because its heartbeats had no answer; also calls of a stopped process that ran, or were admitted, from 0.7 s after the stop until 50 ms after its end. Redis may give their permits to others.
- *free after*: the time from the SIGKILL of a process until the other two run 12 calls at once. The bound is 3 s.
- *back after*: the time from the end of the fault until each process has begun a call with a permit of Redis. The bound is 10 s. On a machine that is busy for more than half of the time both bounds are 20 s.
- *CPU*: as above.

| fault | topology | calls | by the fallback | at once | fallback at once | outlived | free after | back after | CPU |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|
`

// callsText returns the part of the record about calls in flight.
func callsText(rows []*callsOutcome) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(callsHead)
	for _, o := range rows {
		b.WriteString(o.String())
	}
	return b.String()
}

// String returns the row of the record.
func (o *callsOutcome) String() string {
	v := o.verdict
	name, free, most := o.row.title(), "–", fmt.Sprint(callsPermits)
	if len(v.violations) > 0 {
		name += " **✗**"
	}
	if v.free > 0 {
		free = fmt.Sprintf("%.1f s", v.free.Seconds())
	}
	if v.above > 0 {
		most = fmt.Sprintf("%d + %d", callsPermits, v.above)
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d / %s | %d / %d | %d | %s | %.1f s | %.0f %% |\n", name, o.row.topology(), v.calls, v.byFallback,
		v.most, most, v.mostFallback, callsPermits/callsProcs, v.outlived, free, v.back.Seconds(), 100*v.cpu)
}

// progress returns the row for the screen, with its violations.
func (o *callsOutcome) progress(out io.Writer, took time.Duration) {
	fmt.Fprintf(out, "%5.1f s  %s", took.Seconds(), o)
	for _, x := range o.verdict.violations {
		fmt.Fprintf(out, "    BROKEN: %s: %s\n", x.kind, x.text)
	}
}
