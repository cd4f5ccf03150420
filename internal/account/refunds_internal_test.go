package account

import "testing"

// Units of two windows go with two syncs, the older window first. With a third window, the units of the oldest one are void.
func TestRefundsByWindow(t *testing.T) {
	var r refunds
	add := func(units, at, void int64) {
		t.Helper()
		if got := r.add(units, at, true); got != void {
			t.Errorf("%d of %d: %d void, want %d", units, at, got, void)
		}
	}
	take := func(want refund) {
		t.Helper()
		if got := r.take(); got != want {
			t.Errorf("took %+v, want %+v", got, want)
		}
	}
	take(refund{})
	add(3, 8, 0)
	add(2, 7, 0)
	add(1, 8, 0)
	if r.units() != 6 {
		t.Errorf("%d units", r.units())
	}
	take(refund{2, 7})
	take(refund{4, 8})
	take(refund{})
	add(3, 8, 0)
	add(2, 9, 0)
	add(5, 10, 3)
	add(4, 7, 4)
	take(refund{2, 9})
	take(refund{5, 10})
	if r.units() != 0 {
		t.Errorf("%d units", r.units())
	}
}

// For a bucket, cancelled bookings are merged and keep the earliest time. They stay apart from units that were used in part.
func TestRefundsOfABucket(t *testing.T) {
	var r refunds
	for _, x := range []refund{{3, 800}, {2, 0}, {1, 700}, {4, 0}, {1, 900}} {
		if void := r.add(x.units, x.at, false); void != 0 {
			t.Errorf("%+v: %d void", x, void)
		}
	}
	if a, b := r.take(), r.take(); a != (refund{6, 0}) || b != (refund{5, 700}) {
		t.Errorf("%+v, %+v", a, b)
	}
}
