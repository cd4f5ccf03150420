package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

func testCard(t rapid.TB, limit hybridlimit.Limit) (*card, *cardState) {
	t.Helper()
	var last cardState
	var c *card
	var err error
	c, err = newCard("test", "Test", limit, func() { last = c.state() })
	if err != nil {
		t.Fatal(err)
	}
	return c, &last
}

func header(a answer, name string) string {
	for _, h := range a.Headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

// TestCards uses up each algorithm and waits, and checks the data of the drawing
// and the texts.
func TestCards(t *testing.T) {
	for name, tc := range map[string]struct {
		limit    hybridlimit.Limit
		admitted int
		policy   string
		used     float64 // of a bucket or queue, after the burst
		said     string
		after    time.Duration // then one more is admitted
	}{
		"token bucket":   {hybridlimit.TokenBucket(2, time.Second, 10), 10, `"test";q=10;w=5`, 10, "the bucket is empty", 500 * time.Millisecond},
		"leaky bucket":   {hybridlimit.LeakyBucket(2, time.Second, 10), 10, `"test";q=10;w=5`, 10, "would run over", 500 * time.Millisecond},
		"leaky queue":    {hybridlimit.LeakyQueue(2, time.Second, 8), 8, `"test";q=8;w=4`, 8, "the queue of 8 is full", 500 * time.Millisecond},
		"fixed window":   {hybridlimit.FixedWindow(10, 5*time.Second), 10, `"test";q=10;w=5`, 0, "all 10 of this window are used", 5 * time.Second},
		"sliding window": {hybridlimit.SlidingWindow(10, 5*time.Second), 10, `"test";q=10;w=5`, 0, "They count for a part of the next one", 5500 * time.Millisecond},
		"sliding log":    {hybridlimit.SlidingLog(10, 5*time.Second), 10, `"test";q=10;w=5`, 0, "10 are in the log", 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, state := testCard(t, tc.limit)
				answers := c.send("", 12)
				admitted := 0
				for _, a := range answers {
					if a.Status == http.StatusOK {
						admitted++
					}
					if got := header(a, "Ratelimit-Policy"); got != tc.policy {
						t.Errorf("RateLimit-Policy: %s, want %s", got, tc.policy)
					}
				}
				last := answers[11]
				if admitted != tc.admitted || last.Status != http.StatusTooManyRequests || header(last, "Retry-After") == "" {
					t.Errorf("%d admitted, want %d; the last: %+v", admitted, tc.admitted, last)
				}
				if !strings.Contains(last.Body, "quota-exceeded") {
					t.Errorf("the body of a denial: %s", last.Body)
				}
				if state.Used < tc.used-0.001 || state.Used > tc.used+0.001 || state.Sent != 12 || state.Passed != int64(tc.admitted) || state.Remaining != 0 {
					t.Errorf("state %+v", state)
				}
				if !strings.Contains(state.Last, tc.said) || !strings.Contains(state.Last, strconv.Itoa(tc.admitted)+" of 12 admitted") {
					t.Errorf("it says: %s", state.Last)
				}
				time.Sleep(tc.after)
				if again := c.send("", 1)[0]; again.Status != http.StatusOK {
					t.Errorf("after %v: %+v", tc.after, again)
				}
				if err := c.reset(); err != nil {
					t.Fatal(err)
				}
				if state.Remaining != tc.limit.BurstSize() || state.Sent != 0 || state.Used != 0 || state.Window.Cur != 0 || len(state.Log) != 0 {
					t.Errorf("after a reset: %+v", state)
				}
			})
		})
	}
}

// TestDrawnWindowsAreTheLimiters checks that the drawn windows have the counts
// of the limiter, for any calls, pauses and changes of the limit.
func TestDrawnWindowsAreTheLimiters(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rapid.SyncTest(r, func(r *rapid.T) {
			rate := rapid.Int64Range(1, 20).Draw(r, "rate")
			period := time.Duration(rapid.IntRange(1, 40).Draw(r, "period")) * 100 * time.Millisecond
			c, state := testCard(r, hybridlimit.SlidingWindow(rate, period))
			for range rapid.IntRange(1, 20).Draw(r, "steps") {
				switch rapid.IntRange(0, 5).Draw(r, "step") {
				case 0:
					period = time.Duration(rapid.IntRange(1, 40).Draw(r, "period")) * 100 * time.Millisecond
					if err := c.setLimit(cardOrder{rate, period.Milliseconds(), 0}); err != nil {
						r.Fatal(err)
					}
				case 1:
					c.send("", rapid.IntRange(1, 12).Draw(r, "n"))
				default:
					time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(r, "ms")) * time.Millisecond)
				}
				*state = c.state()
				now := time.Now()
				estimate := c.windows.estimate(now, period)
				if want := max(0, rate-estimate); state.Remaining != want {
					r.Fatalf("%d left; the drawn windows %+v have an estimate of %d of %d", state.Remaining, state.Window, estimate, rate)
				}
			}
		})
	})
}

// TestQueueDelays checks that the page shows the delay of a queue at once, and
// that curl waits for it.
func TestQueueDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, state := testCard(t, hybridlimit.LeakyQueue(2, time.Second, 8))
		began := time.Now()
		answers := c.send("", 3)
		if answers[2].Delay != 1000 || time.Since(began) != 0 {
			t.Errorf("after %v: %+v", time.Since(began), answers[2])
		}
		w := httptest.NewRecorder()
		c.serve.ServeHTTP(w, httptest.NewRequest("GET", "/try/test", nil))
		if took := time.Since(began); took != 1500*time.Millisecond || w.Code != http.StatusOK {
			t.Errorf("status %d after %v", w.Code, took)
		}
		if state.Sent != 4 || len(state.Dots) != 4 || state.Dots[3].Delay != 1500 {
			t.Errorf("state %+v", state)
		}
	})
}

func TestCardLimits(t *testing.T) {
	c, state := testCard(t, hybridlimit.TokenBucket(2, time.Second, 10))
	c.send("", 10)
	if err := c.setLimit(cardOrder{5, 2000, 20}); err != nil {
		t.Fatal(err)
	}
	if state.Rate != 5 || state.PeriodMs != 2000 || state.Burst != 20 || state.Remaining > 1 {
		t.Errorf("state %+v: a new limit must not refill", state)
	}
	err := c.setLimit(cardOrder{0, -500, 500})
	for _, want := range []string{"rate (0)", "period_ms (-500)", "burst (500)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if c.limit.Rate != 5 {
		t.Errorf("a refused limit has changed the card: %v", c.limit)
	}
}

// TestPushesAreFew checks that any number of calls within a moment is one push
// with all of them, and that the first call after that moment is pushed at once.
func TestPushesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := &soon{every: pushEvery, do: func() { n.Add(1) }}
		for range 3 {
			for range 1000 {
				s.ask()
			}
			time.Sleep(pushEvery / 5)
		}
		time.Sleep(2 * pushEvery)
		if n := n.Load(); n != 2 { // at 0 and 50 ms
			t.Errorf("%d pushes for 3000 calls in 20 ms, want 2", n)
		}
		s.ask()
		if n.Load() != 3 {
			t.Error("a call after a pause is not pushed at once")
		}
		s.ask()
		s.end()
		time.Sleep(2 * pushEvery)
		if n.Load() != 3 {
			t.Error("a push after the end")
		}
	})
}

// TestBoundary checks that the attack gets twice the limit from a fixed window,
// and the limit from a sliding window.
func TestBoundary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		b := newBoundary(func(boundaryState) { told.Add(1) })
		for range 2 { // it can be run again
			if err := b.attack(); err != nil {
				t.Fatal(err)
			}
			if err := b.attack(); err == nil {
				t.Error("two attacks at once")
			}
			time.Sleep(2*attackWindow + 2*time.Second)
			last := b.look()
			if last.Phase != "done" || last.Lanes[0].Worst != 20 || last.Lanes[1].Worst != 10 {
				t.Errorf("%+v", last)
			}
		}
		if err := b.attack(); err != nil {
			t.Fatal(err)
		}
		b.close()
		if told := told.Load(); told < 2*2*attackBurst {
			t.Errorf("only %d updates", told)
		}
		if err := b.attack(); err == nil {
			t.Error("an attack after the end")
		}
	})
}
