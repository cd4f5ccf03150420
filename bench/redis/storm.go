package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// storm is the cost of a call after Redis has lost its scripts, if all callers
// ask at once. Each may send the whole script.
type storm struct {
	messages, sent float64 // sent: bytes to Redis
	cpu            float64 // µs of Redis
	slowest        float64 // ns, of all calls
	fails          float64 // share of the calls
}

// storm lets each caller ask once after SCRIPT FLUSH.
func (s *subject) storm(ctx context.Context) (out storm, err error) {
	if err := s.srv.admin.ScriptFlush(ctx).Err(); err != nil {
		return out, err
	}
	cpu, err := s.srv.cpu(ctx)
	if err != nil {
		return out, err
	}
	wired := s.wire.traffic()
	took, fails := make([]time.Duration, len(s.rings)), make([]error, len(s.rings))
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i, ring := range s.rings {
		wg.Go(func() {
			<-begin
			from := time.Now()
			_, fails[i] = s.allow(ctx, ring[0])
			took[i] = time.Since(from)
		})
	}
	close(begin)
	wg.Wait()
	went := s.wire.traffic().since(wired)
	cpu2, err := s.srv.cpu(ctx)
	if err != nil {
		return out, err
	}
	n := float64(len(s.rings))
	for i := range took {
		out.slowest = max(out.slowest, float64(took[i]))
		if fails[i] != nil {
			out.fails += 1 / n
		}
	}
	out.messages, out.sent, out.cpu = float64(went.messages)/n, float64(went.sent)/n, float64((cpu2-cpu).Nanoseconds())/1000/n
	return out, nil
}

// stormPage has the storms.
func (r *results) stormPage(b *strings.Builder) {
	fmt.Fprintf(b, "\nThe same keys after `SCRIPT FLUSH`, as after a failover: %d goroutines ask once, all at the same time. "+
		"The costs are those of a call.\n\n", callers)
	heads(b, "limiter", "messages", "bytes to Redis", "Redis CPU, µs", "slowest", "errors")
	for _, d := range r.decisions {
		if len(d.storms) == 0 {
			continue
		}
		m := d.storms.median
		fmt.Fprintf(b, "| %s | %.2f | %s | %.1f | %s | %.1f %% |\n", d.name, m(func(s storm) float64 { return s.messages }),
			thousands(int64(m(func(s storm) float64 { return s.sent }))), m(func(s storm) float64 { return s.cpu }),
			micros(int64(m(func(s storm) float64 { return s.slowest }))), 100*m(func(s storm) float64 { return s.fails }))
	}
}
