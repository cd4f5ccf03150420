package hybrid_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// countLines returns the number of log lines with a text.
func countLines(log capture, text string) int {
	n := 0
	for _, line := range log.all() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// TestTwoProgramsOfOneName lets two programs share a name by mistake. After a minute each side logs the limit of the other, once
// an hour. A rollout of another limit, which takes less, is no such case.
func TestTwoProgramsOfOneName(t *testing.T) {
	const line = "other processes have another limit for this limiter"
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		start := func(limit hybridlimit.Limit) (*hybrid.Limiter, capture) {
			log := newCapture()
			l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Hub: hybrid.HubConfig{Logger: slog.New(log)}})
			time.Sleep(2500 * time.Millisecond)
			return l, log
		}
		a, logA := start(hybridlimit.PerMinute(100))
		old, _ := start(hybridlimit.PerMinute(90)) // ends after 40 s
		time.Sleep(40 * time.Second)
		shutdown(t, old)
		time.Sleep(2 * time.Minute)
		if n := countLines(logA, line); n != 0 {
			t.Errorf("a rollout: %d lines\n%s", n, strings.Join(logA.all(), "\n"))
		}

		_, logX := start(hybridlimit.PerMinute(1000))
		start(hybridlimit.PerMinute(1000))
		time.Sleep(50 * time.Second)
		if n := countLines(logA, line) + countLines(logX, line); n != 0 {
			t.Errorf("before a minute: %d lines", n)
		}
		time.Sleep(30 * time.Second)
		for _, c := range []struct {
			log  capture
			want string
		}{{logA, "limit=100/min other=1000/min processes=2"}, {logX, "limit=1000/min other=100/min processes=1"}} {
			if countLines(c.log, line) != 1 || countLines(c.log, c.want) != 1 {
				t.Errorf("after a minute: no %q in\n%s", c.want, strings.Join(c.log.all(), "\n"))
			}
		}
		time.Sleep(59 * time.Minute)
		if n := countLines(logA, line); n != 1 {
			t.Errorf("within an hour: %d lines", n)
		}
		time.Sleep(2 * time.Minute)
		if n := countLines(logA, line); n != 2 {
			t.Errorf("after an hour: %d lines", n)
		}
		// The fleet's limit is in force everywhere: the difference has no effect.
		limitFleet(t, a, hybrid.FleetLimit{Limit: hybridlimit.PerMinute(500)})
		before := countLines(logA, line)
		time.Sleep(61 * time.Minute)
		if n := countLines(logA, line); n > before {
			t.Errorf("under one limit of the fleet: %d lines", n)
		}
		if got := a.Stats().Fleet; got != 3 {
			t.Errorf("N is %d, want 3", got)
		}
	})
}

// TestOneNameAndOneLimit checks that processes with one limit in different forms, other limiters beside it, and a settings file
// that is the same everywhere, are no case for a line.
func TestOneNameAndOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		log := newCapture()
		for i, limit := range []hybridlimit.Limit{hybridlimit.PerMinute(100), {Rate: 100, Period: time.Minute, Burst: 100}, hybridlimit.PerMinute(100)} {
			h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log)})
			add(t, h, limit, hybrid.Config{Name: "api"})
			if i == 1 {
				add(t, h, hybridlimit.PerMinute(7), hybrid.Config{Name: "other"})
			}
		}
		time.Sleep(5 * time.Minute)
		if n := countLines(log, "other processes have another limit"); n != 0 {
			t.Errorf("%d lines\n%s", n, strings.Join(log.all(), "\n"))
		}
	})
}

// TestLeasedBesideOther lets one process lease the rate of a name, and another one limit it as usual. Both log that, because
// they count apart.
func TestLeasedBesideOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		newLimiter(t, b.Client(nil), hybridlimit.PerMinute(100), hybrid.Config{Hub: hybrid.HubConfig{Logger: slog.New(log)}})
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		if _, err := h.RateLeases(hybridlimit.PerMinute(100), hybrid.RateLeaseConfig{Name: "api"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		if want := `limit=100/min other=leased 100/min processes=1`; countLines(log, want) != 1 {
			t.Errorf("no %s in\n%s", want, strings.Join(log.all(), "\n"))
		}
	})
}
