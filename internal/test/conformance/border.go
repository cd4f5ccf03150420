package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// window makes the key of the cases about a border of windows: 100 units a minute, in virtual time. It returns false if
// the cases do not apply.
func window(t *testing.T, spec Spec) (*bookings, bool) {
	t.Helper()
	b := &bookings{subject: newSubject(t, spec, 100, time.Minute, 100), key: "k"}
	return b, !b.spec.real && (b.inWindows() && b.limit.Algorithm != hybridlimit.AlgCalendarWindow || b.limit.Algorithm == hybridlimit.AlgSlidingLog)
}

// to sleeps until the given time within a minute.
func (b *bookings) to(second time.Duration) {
	now := time.Now()
	at := now.Truncate(time.Minute).Add(second)
	if !at.After(now) {
		at = at.Add(time.Minute)
	}
	b.spec.Sleep(at.Sub(now))
}

// refund gives back the units of a call.
func (b *bookings) refund(a *act) {
	b.t.Helper()
	if _, err := b.lim.Refund(context.Background(), b.key, a.n); err != nil {
		b.t.Fatalf("Refund: %v", err)
	}
	b.forget(a)
}

// spend takes all units that are available, now and until the minute is nearly over. It returns their number.
func (b *bookings) spend() (n int64) {
	b.t.Helper()
	end := time.Now().Truncate(time.Minute).Add(58 * time.Second)
	for {
		n += b.drain()
		if time.Now().Add(19 * time.Second).After(end) {
			return n
		}
		b.spec.Sleep(19 * time.Second)
	}
}

// cancelAfterBorder checks that cancelled units return to the window in which they were taken. After its border they
// give the next window no more units.
func cancelAfterBorder(t *testing.T, spec Spec) {
	for _, first := range []string{"cancelled, then spent", "spent, then cancelled", "cancelled in the middle"} {
		b, ok := window(t, spec)
		if !ok {
			return
		}
		b.to(50 * time.Second)
		a := b.reserve(70)
		if a == nil {
			t.Fatal("70 units of 100 cannot be reserved")
		}
		b.to(10 * time.Millisecond)
		var n int64
		switch first {
		case "cancelled, then spent":
			b.cancel(a)
			n = b.spend()
		case "cancelled in the middle":
			n = b.drain()
			b.cancel(a)
			n += b.spend()
		default:
			n = b.spend()
			b.cancel(a)
			n += b.drain()
		}
		b.within(first, n)
	}
}

// refundAfterBorder checks that a refund, which names no window, gives a window back at most the units that the window
// has counted so far.
func refundAfterBorder(t *testing.T, spec Spec) {
	for _, when := range []time.Duration{59*time.Second + 990*time.Millisecond, 10 * time.Millisecond} {
		b, ok := window(t, spec)
		if !ok {
			return
		}
		b.to(50 * time.Second)
		_, a := b.take(70)
		if a == nil {
			t.Fatal("70 units of 100 were denied")
		}
		b.to(when)
		b.refund(a)
		if when > time.Second {
			b.to(time.Millisecond)
		}
		b.within("refunded at "+when.String(), b.spend())
	}
}

// within fails if a window admitted more than its 100 units, or too few.
func (b *bookings) within(why string, n int64) {
	b.t.Helper()
	least := int64(100)
	if !b.spec.Exact || b.limit.Algorithm == hybridlimit.AlgSlidingWindow { // the estimate falls over the whole window
		least = 1
	}
	if n > 100 || n < least {
		b.t.Errorf("%s: a window of 100 admitted %d units, want %d to 100", why, n, least)
	}
	if b.limit.Algorithm == hybridlimit.AlgSlidingLog {
		b.hold(why)
	}
}

// refundOfALog checks that a log gives the oldest units back. They would leave first, so each period still counts the
// units that were admitted in it and kept.
func refundOfALog(t *testing.T, spec Spec) {
	b, ok := window(t, spec)
	if !ok || b.limit.Algorithm != hybridlimit.AlgSlidingLog {
		return
	}
	_, old := b.take(70)
	b.spec.Sleep(50 * time.Second)
	b.take(30)
	b.refund(old)
	b.drain()
	b.spec.Sleep(11 * time.Second)
	b.drain()
	b.hold("70 refunded, 50 s after they were taken")
}
