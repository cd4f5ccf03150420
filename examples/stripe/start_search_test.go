//go:build search

package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The whole program, in real time, with shorter phases. A busy machine may stop all
// goroutines, and then clients leave and Redis does not answer. So the figures of
// payments count if the machine kept time, as a canary tells, and if Redis answered.
// TestEachLimiter checks them in any case.
func TestStart(t *testing.T) {
	canary := newCanary()
	begin := time.Now()
	var out strings.Builder
	if err := start(t.Context(), &out, 1500*time.Millisecond); err != nil {
		t.Fatalf("%v; it printed\n%s", err, out.String())
	}
	took, late := time.Since(begin), canary.stop()
	rows := regexp.MustCompile(`(?m)^  (with the limiters|without) +(.*?) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$`).FindAllStringSubmatch(out.String(), -1)
	if len(rows) != 22 {
		t.Fatalf("%d rows, want 22:\n%s", len(rows), out.String())
	}
	busy := late >= 200*time.Millisecond || strings.Contains(out.String(), "decided without Redis")
	for _, row := range rows {
		n := [5]int{}
		for i := range n {
			n[i], _ = strconv.Atoi(row[3+i])
		}
		sent, served, timedOut := n[0], n[1], n[4]
		with := row[1] == names[0]
		switch {
		case sent != n[1]+n[2]+n[3]+n[4]:
			t.Errorf("an end of a request is not in the table: %q", row[0])
		case !with && sent != served+timedOut:
			t.Errorf("denied without a limiter: %q", row[0])
		case with && strings.HasPrefix(row[2], "listings, greedy") && served > 22+int(10*took.Seconds()):
			t.Errorf("more than its limit in %v: %q", took, row[0])
		case with && strings.HasPrefix(row[2], "payments") && !busy && served+timedOut < sent:
			t.Errorf("payments were refused, while the machine was at most %v late and Redis answered: %q", late, row[0])
		}
	}
	t.Logf("the machine was at most %v late\n%s", late, out.String())
}

// canary measures how late the machine wakes a goroutine.
type canary struct {
	end  chan struct{}
	late chan time.Duration
}

func newCanary() *canary {
	c := &canary{make(chan struct{}), make(chan time.Duration, 1)}
	go func() {
		const every = 10 * time.Millisecond
		worst := time.Duration(0)
		for {
			begin := time.Now()
			select {
			case <-c.end:
				c.late <- worst
				return
			case <-time.After(every):
				worst = max(worst, time.Since(begin)-every)
			}
		}
	}()
	return c
}

// stop returns the longest delay.
func (c *canary) stop() time.Duration {
	close(c.end)
	return <-c.late
}
