package ratesync_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// trips is a breaker that opens after three misses, for 250 to 750 ms.
var trips = breaker.Config{Failures: 3, FailureRatio: -1, OpenFor: 500 * time.Millisecond, SlowCall: 100 * time.Millisecond}

// open opens a breaker of trips with failed calls.
func open(t *testing.T, br *circuit.Breaker) {
	t.Helper()
	for br.State() != breaker.Open {
		call, ok := br.Begin()
		if !ok {
			t.Fatalf("Begin = false while %v", br.State())
		}
		call.End(0, errLost)
	}
}

// outage is a Redis that is down until mended.
type outage struct{ mended time.Time }

func (o outage) script(ctx context.Context, a attempt) (wire.Reply, error) {
	if now().Before(o.mended) {
		return wire.Reply{}, errLost
	}
	return applied(ctx, a)
}

// An open breaker permits no batch. When its open time is over, one batch is the probe.
func TestBreakerPacesRetries(t *testing.T) {
	inBubble(t, trips, func(t *testing.T, w *world) {
		w.redis.script = outage{now().Add(5 * time.Second)}.script
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		time.Sleep(23 * time.Millisecond) // three misses: two pauses of less than 7.5 and 15 ms
		synctest.Wait()
		for range 5 {
			sent := len(w.redis.all())
			if w.breaker.State() != breaker.Open {
				t.Fatalf("%v after %d misses", w.breaker.State(), sent)
			}
			in := w.breaker.RetryIn()
			time.Sleep(in - 1)
			w.wantAttempts(sent)
			// The lane asks again when the open time is over, within a millisecond.
			time.Sleep(time.Millisecond + 1)
			w.wantAttempts(sent + 1)
		}
		time.Sleep(10 * time.Second)
		if a.account() != [4]int64{0, 0, 1, 0} {
			t.Errorf("%v", a.account())
		}
	})
}

// No op is frozen while the breaker is open. It would be out of date when the breaker
// closes.
func TestOpenBreakerFreezesNothing(t *testing.T) {
	long := trips
	long.OpenFor = 2 * time.Minute // with jitter, 1 to 3 minutes
	inBubble(t, long, func(t *testing.T, w *world) {
		open(t, w.breaker)
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		time.Sleep(time.Minute - time.Second)
		a.owe(1)
		w.wantAttempts(0)
		time.Sleep(2*time.Minute + 2*time.Second)
		if got := w.wantAttempts(1)[0]; got.owed()["a"] != 2 {
			t.Errorf("sent %v", got.owed())
		}
	})
}

// A half-open breaker gets one batch, however many batches wait in the lanes. Regression:
// the other lanes slept until the probe could count as lost, max(OpenFor, 10·SlowCall) = 1 s,
// even if the probe had succeeded long before.
func TestProbeIsOneBatch(t *testing.T) {
	inBubble(t, trips, func(t *testing.T, w *world) {
		w.redis.script = outage{now().Add(100 * time.Millisecond)}.script
		var items []*item
		due := now().Add(time.Millisecond) // later, so that each lane has one batch
		for i := range 10 * tags {
			it := newItem(t, fmt.Sprint(i), 1)
			items = append(items, it)
			w.Enqueue(i%tags, it, due)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		before := len(w.redis.all())
		for len(w.redis.all()) == before {
			time.Sleep(time.Millisecond / 8)
		}
		if w.breaker.State() != breaker.HalfOpen {
			t.Fatalf("the breaker is %v", w.breaker.State())
		}
		time.Sleep(rtt - time.Millisecond/4)
		w.wantAttempts(before + 1)
		time.Sleep(10*time.Millisecond + rtt)
		w.wantAttempts(before + tags)
		for _, it := range items {
			if it.account() != [4]int64{0, 0, 1, 0} {
				t.Fatalf("%s: %v 10 ms after the probe", it.name, it.account())
			}
		}
	})
}

// If the lane of the probe has nothing to send, it gives up the probe, and another lane
// may be the probe.
func TestEmptyProbe(t *testing.T) {
	inBubble(t, trips, func(t *testing.T, w *world) {
		open(t, w.breaker)
		time.Sleep(w.breaker.RetryIn()) // open, the next Begin is the probe
		silent := newItem(t, "silent", 0)
		w.Enqueue(0, silent, now())
		time.Sleep(2 * time.Millisecond)
		if w.breaker.State() != breaker.HalfOpen || w.breaker.RetryIn() != 0 {
			t.Fatalf("%v, retry in %v", w.breaker.State(), w.breaker.RetryIn())
		}
		a := newItem(t, "a", 1)
		w.Enqueue(1, a, now())
		time.Sleep(rtt)
		w.wantAttempts(1)
		if w.breaker.State() != breaker.Closed {
			t.Errorf("%v after the probe", w.breaker.State())
		}
	})
}

// A slow answer is settled, and counts as a failure in the breaker.
func TestSlowAnswersTrip(t *testing.T) {
	inBubble(t, trips, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			return replyTo(a), wait(ctx, trips.SlowCall+1)
		}
		for i := range 3 {
			if w.breaker.State() != breaker.Closed {
				t.Fatalf("%v after %d slow answers", w.breaker.State(), i)
			}
			a := newItem(t, "a", 1)
			w.Enqueue(0, a, now())
			time.Sleep(2 * trips.SlowCall)
			if a.account() != [4]int64{0, 0, 1, 0} {
				t.Errorf("%v", a.account())
			}
		}
		if w.breaker.State() != breaker.Open {
			t.Errorf("%v after three slow answers", w.breaker.State())
		}
	})
}

// Each lane asks the breaker of its tag.
func TestBreakerPerTag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, err := circuit.New(breaker.Config{OpenFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		open(t, down)
		w := newWorld(t, calm, func(c *ratesync.Config) {
			up := c.Breaker
			c.Breaker = func(tag int) *circuit.Breaker {
				if tag == 0 {
					return down
				}
				return up(tag)
			}
		})
		a, b := newItem(t, "a", 1), newItem(t, "b", 1)
		w.Enqueue(0, a, now())
		w.Enqueue(1, b, now())
		time.Sleep(time.Second)
		if got := w.wantAttempts(1)[0]; got.owed()["b"] != 1 {
			t.Errorf("sent %v", got.owed())
		}
	})
}

// TestLatenessIsNotRedis checks a process that waits for a core. Its own lateness does not
// count as slowness of Redis. An answer that has arrived but is not yet read does not
// count as lost. The process still does not wait for ever.
func TestLatenessIsNotRedis(t *testing.T) {
	for _, tc := range []struct {
		name         string
		late, answer time.Duration
		misses       bool
		opens        bool
	}{
		{"in time, slow", 0, 150 * time.Millisecond, false, true},
		{"late, slow", 60 * time.Millisecond, 150 * time.Millisecond, false, false},
		{"late, slower than that", 40 * time.Millisecond, 150 * time.Millisecond, false, true},
		{"in time, lost", 0, timeout + 50*time.Millisecond, true, true},
		{"late, not lost", 240 * time.Millisecond, timeout + 50*time.Millisecond, false, false},
		{"for ever late, lost", time.Hour, 2*timeout + 50*time.Millisecond, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, trips, func(cfg *ratesync.Config) { cfg.Late = func() time.Duration { return tc.late } })
				w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
					if err := wait(ctx, tc.answer); err != nil {
						return wire.Reply{}, err
					}
					return replyTo(a), nil
				}
				opened := false
				for i := range 4 {
					w.Enqueue(0, newItem(t, fmt.Sprint(i), 1), time.Time{})
					time.Sleep(tc.answer + time.Millisecond)
					synctest.Wait()
					opened = opened || w.breaker.State() == breaker.Open
				}
				time.Sleep(3 * timeout)
				synctest.Wait()
				opened = opened || w.breaker.State() == breaker.Open
				if opened != tc.opens {
					t.Errorf("opened %t, want %t", opened, tc.opens)
				}
				if got := w.Stats().Failures > 0; got != tc.misses {
					t.Errorf("%d attempts without an answer", w.Stats().Failures)
				}
			})
		})
	}
}

// A time-out does not count against Redis if this process was late for about as long as
// the call's time limit. It counts if the call got that much more time.
func TestOutcome(t *testing.T) {
	late := time.Duration(0)
	e := ratesync.New(ratesync.Config{Timeout: timeout, Late: func() time.Duration { return late }})
	defer e.Close()
	broken := errors.New("broken")
	for _, tc := range []struct {
		name              string
		late, given, took time.Duration
		err               error
		wantTook          time.Duration
		want              error
	}{
		{"in time", 0, timeout, timeout, context.DeadlineExceeded, timeout, context.DeadlineExceeded},
		{"late, and not known at first", timeout, timeout, 2 * timeout, context.DeadlineExceeded, timeout, context.Canceled},
		{"late, and known", timeout, 2 * timeout, 2 * timeout, context.DeadlineExceeded, timeout, context.DeadlineExceeded},
		{"for ever late", time.Hour, 2 * timeout, 2 * timeout, context.DeadlineExceeded, timeout, context.DeadlineExceeded},
		{"late by half", timeout / 2, timeout, timeout, context.DeadlineExceeded, timeout / 2, context.DeadlineExceeded},
		{"late and refused", timeout, timeout, timeout, broken, 0, broken},
		{"late and answered", timeout, timeout, timeout / 2, nil, 0, nil},
	} {
		late = tc.late
		if took, err := e.Outcome(tc.given, tc.took, tc.err); took != tc.wantTook || err != tc.want {
			t.Errorf("%s: %v, %v, want %v, %v", tc.name, took, err, tc.wantTook, tc.want)
		}
	}
}
