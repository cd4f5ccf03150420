package hybrid_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// capture is a slog.Handler that keeps lines as text.
type capture struct {
	mu    *sync.Mutex
	lines *[]string
	with  string
	skip  string // lines with this prefix are not kept; empty: all lines are kept
}

func newCapture() capture { return capture{mu: new(sync.Mutex), lines: new([]string)} }

func (c capture) Enabled(context.Context, slog.Level) bool { return true }
func (c capture) WithGroup(string) slog.Handler            { return c }

func (c capture) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		c.with += " " + a.String()
	}
	return c
}

func (c capture) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprintf("%v %s%s", r.Level, r.Message, c.with)
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	if c.skip != "" && strings.HasPrefix(line, c.skip) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.lines = append(*c.lines, line)
	return nil
}

// all returns the lines so far.
func (c capture) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(*c.lines)
}

// want checks that the lines so far begin with starts, one prefix for each line.
func (c capture) want(t *testing.T, starts ...string) {
	t.Helper()
	got := c.all()
	ok := len(got) == len(starts)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.HasPrefix(got[i], starts[i])
	}
	if !ok {
		t.Errorf("logged:\n\t%s\nwant lines that begin:\n\t%s", strings.Join(got, "\n\t"), strings.Join(starts, "\n\t"))
	}
}

const (
	lineBroken = "WARN hybridlimit: Redis does not answer (check Redis and the network); its keys are decided locally, by each limiter's fallback"
	lineAlone  = "WARN hybridlimit: the fleet's size is unknown"
	lineMended = "INFO hybridlimit: Redis answers again"
	lineLost   = "WARN hybridlimit: Redis lost its state"
)

func TestRedisDownAtTheStart(t *testing.T) {
	for _, hint := range []int{0, 4} {
		t.Run(fmt.Sprint("FleetSize ", hint), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				b.Kill()
				log := newCapture()
				l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(1, time.Minute, 400), hybrid.Config{
					Hub: hybrid.HubConfig{Logger: slog.New(log), FleetSize: hint, Prefix: "shop"},
				})
				// Each call is decided at once, by the fallback.
				admitted := 0
				for range 600 {
					res := ask(t, l, "k", 1)
					if res.Source != hybridlimit.SourceFallback {
						t.Fatalf("without Redis: %+v", res)
					}
					if res.Allowed {
						admitted++
					}
				}
				if want := 400 / max(hint, 1); admitted != want {
					t.Errorf("%d of a burst of 400 were admitted, want %d", admitted, want)
				}
				time.Sleep(time.Minute)
				want := []string{lineBroken}
				if hint == 0 {
					want = append(want, lineAlone)
				}
				log.want(t, want...)
				for _, part := range []string{"prefix=shop", "cause=", "fallback=share", fmt.Sprint("fleet=", max(hint, 1))} {
					if got := log.all()[0]; !strings.Contains(got, part) {
						t.Errorf("%q does not say %q", got, part)
					}
				}

				b.Restart()
				time.Sleep(3 * time.Second)
				log.want(t, append(want, lineMended)...)
				if res := ask(t, l, "fresh", 1); !res.Allowed || res.Source != hybridlimit.SourceRedis {
					t.Errorf("with Redis back: %+v", res)
				}
				if s := l.Stats(); s.Breaker != breaker.Closed || s.Fleet != 1 {
					t.Errorf("with Redis back: breaker %v, fleet %d", s.Breaker, s.Fleet)
				}
			})
		})
	}
}

// TestTheLastLineIsRight checks that the last line of the log reports the current
// state, however often Redis goes away and comes back.
func TestTheLastLineIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		log := newCapture()
		log.skip = lineLost // each restart also logs a loss
		l := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(10_000), hybrid.Config{
			Hub: hybrid.HubConfig{Logger: slog.New(log), Breaker: breaker.Config{OpenFor: 50 * time.Millisecond}},
		})
		keys := 0
		use := func(until string, cond func() bool) {
			t.Helper()
			for range 10_000 {
				keys++ // a new key for each call, because a known key may need no sync for a while
				ask(t, l, fmt.Sprint("k", keys), 1)
				time.Sleep(time.Millisecond)
				if cond() {
					return
				}
			}
			t.Fatalf("not in 10 s: %s", until)
		}
		open := func() bool { return l.Stats().Breaker != breaker.Closed }
		time.Sleep(2 * time.Second) // two heartbeats
		use("credit", func() bool { return l.Stats().Fleet == 1 && l.Stats().Credit > 0 })
		start := time.Now()
		for range 3 {
			b.Kill()
			use("open", open)
			b.Restart()
			use("closed", func() bool { return !open() })
		}
		b.Kill()
		use("open", open)
		if time.Since(start) > time.Second {
			t.Fatalf("four failures took %v, too slow for lines to be skipped", time.Since(start))
		}
		log.want(t, lineBroken, lineMended)
		time.Sleep(10 * time.Second)
		log.want(t, lineBroken, lineMended, lineBroken)
		if got := log.all(); !strings.Contains(got[len(got)-1], "skipped=") {
			t.Errorf("%q does not report skipped lines", got[len(got)-1])
		}
		b.Restart()
		time.Sleep(10 * time.Second)
		log.want(t, lineBroken, lineMended, lineBroken, lineMended)
	})
}

// TestSmallPartIsSaid checks that one line reports a limit whose credit is 0 units.
func TestSmallPartIsSaid(t *testing.T) {
	for _, c := range []struct {
		mode  hybrid.Mode
		burst int64
		says  bool
	}{
		{hybrid.ModeAuto, 5, true},
		{hybrid.ModeAuto, 100, false},
		{hybrid.ModeDeferred, 5, false},
		{hybrid.ModeStrict, 5, false},
	} {
		t.Run(fmt.Sprint(c.mode, c.burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newCapture()
				newLimiter(t, redistest.NewBubble(t).Client(nil), hybridlimit.PerMinute(c.burst),
					hybrid.Config{Mode: c.mode, Hub: hybrid.HubConfig{Logger: slog.New(log)}})
				time.Sleep(10 * time.Second)
				if c.says {
					log.want(t, "INFO hybridlimit: the credit of a key is 0 units, so a call for a key without a lease waits one round trip to Redis")
					if got, why := log.all()[0], "credit is 0 units: Overshoot 0.05 × burst 5 / 1 is below one, and an Overshoot of 0.2 gives 1"; !strings.Contains(got, why) {
						t.Errorf("%q does not say %q", got, why)
					}
				} else {
					log.want(t)
				}
			})
		})
	}
}
