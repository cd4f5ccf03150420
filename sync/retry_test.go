package ratesync_test

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// failing gives no answer to the first attempts, as many as misses, and answers the rest.
func failing(misses int) func(context.Context, attempt) (wire.Reply, error) {
	return func(ctx context.Context, a attempt) (wire.Reply, error) {
		if a.n < misses {
			return wire.Reply{}, errLost
		}
		return applied(ctx, a)
	}
}

// A retry carries the content of the first attempt, without later units. Leases count from
// the first attempt.
func TestRetriesAreFrozen(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = failing(3)
		began := now()
		a, b := newItem(t, "a", 1), newItem(t, "b", 2)
		w.Enqueue(0, a, began)
		time.Sleep(time.Millisecond)
		a.owe(100)
		w.Enqueue(0, a, now())
		w.Enqueue(0, b, now())
		time.Sleep(time.Second)

		all := w.wantAttempts(5) // the fake has compared the first four
		for _, got := range all[:4] {
			if got.env.Seq != 1 || len(got.ops) != 1 || got.owed()["a"] != 1 {
				t.Errorf("attempt %d: sequence %d, %v", got.n, got.env.Seq, got.owed())
			}
		}
		if got := all[4]; got.env.Seq != 2 || got.owed()["a"] != 100 || got.owed()["b"] != 2 {
			t.Errorf("the next batch: sequence %d, %v", got.env.Seq, got.owed())
		}
		first := a.answers[0]
		if !first.Sent.Equal(began) || !first.Received.Equal(all[3].at.Add(rtt)) {
			t.Errorf("sent %v and received %v after the start", first.Sent.Sub(began), first.Received.Sub(began))
		}
		if got := w.Stats(); got != (ratesync.Stats{Messages: 5, Ops: 6, Failures: 3}) {
			t.Errorf("%+v", got)
		}
		if w.RTT() != rtt {
			t.Errorf("RTT = %v, want one round trip", w.RTT())
		}
	})
}

// The pause after the k-th miss is 5 ms·2^(k−1), at most 160 ms, times a random factor in
// [½, 1½).
func TestBackoff(t *testing.T) {
	const misses, runs = 8, 20
	var pauses [misses][]time.Duration
	inBubble(t, calm, func(t *testing.T, w *world) {
		for range runs {
			from := len(w.redis.all())
			w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
				return failing(from+misses)(ctx, a)
			}
			a := newItem(t, "a", 1)
			w.Enqueue(0, a, now())
			time.Sleep(10 * time.Second)
			all := w.redis.all()[from:]
			for k := range misses {
				pauses[k] = append(pauses[k], all[k+1].at.Sub(all[k].at))
			}
		}
	})
	for k := range misses {
		base := min(5*time.Millisecond<<k, 160*time.Millisecond)
		seen := map[time.Duration]bool{}
		for _, p := range pauses[k] {
			seen[p] = true
			if p < base/2 || p >= base*3/2 {
				t.Errorf("pause %d is %v, want [%v, %v)", k+1, p, base/2, base*3/2)
			}
		}
		if len(seen) < runs/2 {
			t.Errorf("pause %d has no jitter: %v", k+1, pauses[k])
		}
	}
}

// An answer ends the row of misses. The next miss has the shortest pause.
func TestBackoffStartsAnew(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.n == 5 || a.n == 7 {
				return applied(ctx, a)
			}
			return wire.Reply{}, errLost
		}
		for range 2 {
			a := newItem(t, "a", 1)
			w.Enqueue(0, a, now())
			time.Sleep(10 * time.Second)
		}
		all := w.wantAttempts(8)
		if p := all[7].at.Sub(all[6].at); p >= 7500*time.Microsecond {
			t.Errorf("the pause after the first miss is %v, want less than 7.5 ms", p)
		}
	})
}

// New and urgent nodes do not shorten the pause after a miss.
func TestPauseIsNotCutShort(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = failing(6) // the sixth pause is 80 to 240 ms
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		for len(w.redis.all()) < 6 {
			time.Sleep(time.Millisecond)
		}
		missed := now()
		for range 70 {
			b := newItem(t, "b", 1)
			w.Enqueue(0, b, now())
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if p := w.redis.all()[6].at.Sub(missed); p < 78*time.Millisecond {
			t.Errorf("the next attempt came %v after the sixth miss, want at least 78 ms", p)
		}
	})
}

// An attempt lasts at most Timeout.
func TestAttemptTimeout(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.n == 0 {
				return hangs(ctx)
			}
			return applied(ctx, a)
		}
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		time.Sleep(2 * timeout)
		all := w.wantAttempts(2)
		if p := all[1].at.Sub(all[0].at) - timeout; p < 2500*time.Microsecond || p >= 7500*time.Microsecond {
			t.Errorf("the retry came %v after the time-out", p)
		}
		if a.account() != [4]int64{0, 0, 1, 0} {
			t.Errorf("%v", a.account())
		}
	})
}

// A batch that Redis had already applied is settled like any other, and counted as seen.
func TestSeen(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.n == 0 {
				return wire.Reply{}, errLost
			}
			r := replyTo(a)
			r.Seen = true
			return r, nil
		}
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		time.Sleep(time.Second)
		if got := w.Stats(); got.Seen != 1 || a.account() != [4]int64{0, 0, 1, 0} {
			t.Errorf("%+v, %v", got, a.account())
		}
	})
}
