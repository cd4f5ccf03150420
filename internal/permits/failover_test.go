package permits_test

import (
	"math/rand/v2"
	"testing"
)

// TestGiveBackLostInAFailover plays schedules in which permits stay booked: a failover without an outage loses the last
// give-back of a process, which then sends nothing, or nothing for 10 s, or gets no answer to its next message. No call
// above the permits is admitted, and one call of that process frees the permits. In the last four, the process hears of
// the loss by its next message, 8.6 to 9.8 s later. Regression: calls that waited for its permits counted as starving,
// and after 9 s it did not tell the give-back again.
func TestGiveBackLostInAFailover(t *testing.T) {
	for _, test := range []struct {
		seed uint64
		kept int // keys of which permits stay booked until the end
	}{
		{1002260, 1},
		{15900000000000157674, 1},
		{15900000000000006707, 1},
		{15910583697287897002, 0},
		{15900000000000320203, 0},
		{15900000000000333744, 0},
		{15900000000000381191, 0},
	} {
		o := schedule(failedOver, "", test.seed)
		if len(o.kept) != test.kept || len(o.bad) > 0 || o.excess > 0 {
			t.Errorf("seed %d: permits that stay booked: %q, want %d; other errors: %q; %d calls above the permits",
				test.seed, o.kept, test.kept, o.bad, o.excess)
		}
	}
}

// TestWaitForAPermitThatStaysBooked lets a call wait while a failover keeps the permit of another process booked. No
// permit is free in Redis, so the call does not starve. It begins after the next call of the other process.
func TestWaitForAPermitThatStaysBooked(t *testing.T) {
	w := newWorld(quiet(2, 1), rand.New(rand.NewPCG(1, 1)))
	w.patience = 20 * second
	learns, first, waits, next := &call{}, &call{lasts: second / 10}, &call{lasts: second}, &call{lasts: second / 10}
	for _, c := range []*call{learns, first, waits, next} {
		c.waiter.N = 1
	}
	holder, other := w.procs[0], w.procs[1]
	w.At(3*second, func() { holder.call(learns) }) // the tag is new: Redis learns until 6 s
	w.At(8*second, func() { holder.call(first) })
	w.At(8*second+second/20, w.replicate)
	w.At(8*second+second/2, w.failOver)
	w.At(9*second, func() { other.call(waits) })
	for at := 9 * second; at < 20*second; at += second / 4 {
		w.At(at, w.watch)
	}
	w.Run(20 * second)
	if !first.runs || waits.runs || holder.staysBooked(0) != 1 || len(w.bad) > 0 {
		t.Fatalf("the first call was admitted: %v; the one that waits: %v; %d permits stay booked; errors: %q",
			first.runs, waits.runs, holder.staysBooked(0), w.bad)
	}
	holder.call(next)
	w.Run(22 * second)
	if !next.runs || !waits.runs || holder.staysBooked(0) != 0 {
		t.Errorf("the next call of the holder was admitted: %v; the one that waits: %v; %d permits stay booked",
			next.runs, waits.runs, holder.staysBooked(0))
	}
}

// TestLossHeardAfterAPause lets a process hear of a give-back that a failover has lost by its first message after a
// pause, for another key. It tells the give-back again after its next heartbeat, and a call of another process begins.
// Regression: it told only a give-back of the last 10 s, and the permit stayed booked.
func TestLossHeardAfterAPause(t *testing.T) {
	for _, pause := range []int64{2 * second, 9 * second, 98 * second / 10} {
		s := quiet(2, 1)
		s.keysCount, s.patience = 2, 10*second
		w := newWorld(s, rand.New(rand.NewPCG(1, 1)))
		learns, first, another, waits := &call{}, &call{lasts: second / 10}, &call{key: 1}, &call{}
		for _, c := range []*call{learns, first, another, waits} {
			c.waiter.N = 1
		}
		holder, other := w.procs[0], w.procs[1]
		w.At(3*second, func() { holder.call(learns) }) // the tag is new: Redis learns until 6 s
		w.At(8*second, func() { holder.call(first) })
		w.At(8*second+second/20, w.replicate)
		w.At(8*second+second/2, w.failOver)
		back := 8*second + second/10 + pause // the give-back is sent when the first call ends
		w.At(back, func() {
			if holder.staysBooked(0) != 1 {
				t.Error("the failover has lost no give-back")
			}
			holder.call(another)
		})
		w.At(back+second/10, func() { other.call(waits) })
		w.Run(back + 8*second)
		if !another.runs || !waits.runs {
			t.Errorf("after %v s: the call for another key was admitted: %v; the one of the other process: %v",
				float64(pause)/float64(second), another.runs, waits.runs)
		}
	}
}
