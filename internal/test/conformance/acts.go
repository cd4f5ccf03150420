package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// bookings is a key whose units are reserved for later and given back. It compares the units that were kept, each at
// the time at which it may be used, with the limit.
type bookings struct {
	*subject
	key  string
	acts []*act
}

// act is a number of units and the time at which they may be used. The time is between first and last, because the
// moment of the decision within a call is unknown.
type act struct {
	first, last time.Time
	n           int64
	held        *hybridlimit.Reservation // nil unless the units were reserved
}

// acted records the units of a call that began at a time and has just returned.
func (b *bookings) acted(began time.Time, n int64, delay time.Duration, held *hybridlimit.Reservation) *act {
	a := &act{first: began.Add(delay), last: time.Now().Add(delay), n: n, held: held}
	b.acts = append(b.acts, a)
	return a
}

// take calls AllowN. It does not compare the sum with burst + rate·t since the start, because cancelled units come
// back.
func (b *bookings) take(n int64) (hybridlimit.Result, *act) {
	b.t.Helper()
	began := time.Now()
	res, err := b.lim.AllowN(context.Background(), b.key, n)
	if err != nil {
		b.t.Fatalf("AllowN(%d): %v", n, err)
	}
	if !res.Allowed {
		return res, nil
	}
	return res, b.acted(began, n, res.Delay, nil)
}

// drain takes single units until none is left. It returns their number.
func (b *bookings) drain() (n int64) {
	b.t.Helper()
	for ; n <= b.limit.BurstSize(); n++ {
		if _, a := b.take(1); a == nil {
			break
		}
	}
	return n
}

// reserve reserves n units. It returns nil if they cannot be reserved.
func (b *bookings) reserve(n int64) *act {
	b.t.Helper()
	began := time.Now()
	r, err := b.lim.Reserve(context.Background(), b.key, n)
	if err != nil {
		b.t.Fatalf("Reserve(%d): %v", n, err)
	}
	if !r.Allowed {
		return nil
	}
	return b.acted(began, n, r.Delay, r)
}

// cancel gives reserved units back and drops their record.
func (b *bookings) cancel(a *act) {
	b.t.Helper()
	if err := a.held.Cancel(context.Background()); err != nil {
		b.t.Fatalf("Cancel: %v", err)
	}
	b.forget(a)
}

// forget drops the record of units.
func (b *bookings) forget(a *act) {
	b.acts = slices.DeleteFunc(b.acts, func(o *act) bool { return o == a })
}

// hold fails if more units are used in some interval than the limit allows.
func (b *bookings) hold(why string) {
	b.t.Helper()
	byEnd := slices.SortedFunc(slices.Values(b.acts), func(x, y *act) int { return x.last.Compare(y.last) })
	for _, from := range byEnd {
		sum := int64(0)
		for _, to := range byEnd {
			if to.first.Before(from.first) {
				continue
			}
			sum += to.n
			if took := to.last.Sub(from.first); sum > b.most(took+2*clockSlack) {
				b.t.Fatalf("%s: %d units are used within %v, want at most %d", why, sum, took, b.most(took+2*clockSlack))
			}
		}
	}
}

// tenASecond makes a key of 10 units a second, with a burst of 10.
func tenASecond(t *testing.T, spec Spec) *bookings {
	t.Helper()
	return &bookings{subject: newSubject(t, spec, 10, time.Second, 10), key: "k"}
}

// booksAhead reports whether the limit is a bucket, of which units can be booked before they are refilled.
func (s *subject) booksAhead() bool {
	return s.limit.Algorithm == hybridlimit.AlgTokenBucket || s.limit.Algorithm == hybridlimit.AlgLeakyBucket
}

// cancelBeforeOthers checks that a Cancel gives back only the units that later bookings leave free. If all came back, a
// new call could take a whole burst at the time of the later bookings.
func cancelBeforeOthers(t *testing.T, spec Spec) {
	b := tenASecond(t, spec)
	if !b.booksAhead() {
		return
	}
	b.take(1)
	first, second := b.reserve(10), b.reserve(9)
	if first == nil || second == nil {
		if spec.Exact {
			t.Errorf("Reserve: %+v, %+v, want a whole burst booked ahead", first, second)
		}
		return
	}
	b.cancel(first)
	b.reserve(10)
	b.hold("10 units cancelled, with 9 booked behind them")
	if b.spec.real || !spec.Exact {
		return
	}
	// 1 unit is used at 0 and 9 units at 1 s. That leaves one unit at 1 s, and a burst one second later.
	one := b.reserve(1)
	b.spec.Sleep(time.Second)
	ten := b.reserve(10)
	for want, got := range map[time.Duration]*act{time.Second: one, 2 * time.Second: ten} {
		if got == nil || got.last.Sub(second.first) > want-time.Second+b.slack() {
			t.Errorf("booked %+v, want it %v after the start; the 9 units are booked for %v", got, want, second.first)
		}
	}
	b.hold("10 units cancelled, and others booked after the 9")
}

// giveUpWaiting checks that a Wait that ends early frees no units at the time of the calls that still wait.
func giveUpWaiting(t *testing.T, spec Spec) {
	b := tenASecond(t, spec)
	if b.spec.real || !b.booksAhead() {
		return
	}
	b.take(1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	wait := func(ctx context.Context, n int64) {
		wg.Go(func() {
			_, err := b.lim.Wait(ctx, b.key, n)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				b.acted(time.Now(), n, 0, nil)
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("Wait(%d): %v", n, err)
			}
		})
		b.spec.Sleep(20 * time.Millisecond)
	}
	wait(ctx, 10)
	wait(context.Background(), 9)
	cancel()
	b.spec.Sleep(20 * time.Millisecond)
	wait(context.Background(), 10)
	wg.Wait()
	b.hold("one call stopped waiting")
}

// slack returns the largest difference between equal times of two calls, in virtual time.
func (s *subject) slack() time.Duration { return 2 * s.spec.Tick }

// cancelLast checks that after a Cancel of the last reservation, the same units can be reserved again for the same
// time.
func cancelLast(t *testing.T, spec Spec) {
	if !spec.Exact {
		return
	}
	for seed := range uint64(4) {
		b := tenASecond(t, spec)
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 12 {
			b.pass(rng)
			if n := 1 + rng.Int64N(6); rng.IntN(2) == 0 {
				b.take(n)
			} else if a := b.reserve(n); a != nil {
				b.cancel(a)
				again := b.reserve(n)
				if b.split() > 0 { // a unit in hand is missing to the booking
					continue
				}
				if again == nil || again.last.Sub(a.first) > b.slack() && !b.spec.real {
					t.Fatalf("seed %d: %d units could be used at %v; cancelled and reserved again: %+v", seed, n, a.first, again)
				}
			}
		}
		b.hold("the last reservation was cancelled")
	}
}

// pass lets a random time pass: often none, at most the time in which a key becomes full.
func (b *bookings) pass(rng *rand.Rand) {
	pauses := []time.Duration{0, 0, 0, 10, 30, 100, 250, 500, 1000}
	if b.spec.real {
		pauses = []time.Duration{0, 0, 0, 0, 0, 1, 3}
	}
	b.spec.Sleep(pauses[rng.IntN(len(pauses))] * time.Millisecond)
}

// cancelAnyOrder checks that the units used keep to the limit if reservations are cancelled in any order. If late is
// set, units are also given back after their time has come.
func cancelAnyOrder(t *testing.T, spec Spec, late bool) {
	for seed := range uint64(testenv.Runs(spec.calls(8), spec.calls(24))) {
		b := tenASecond(t, spec)
		rng := rand.New(rand.NewPCG(seed, 2))
		for range 40 {
			b.pass(rng)
			n := 1 + rng.Int64N(10)
			if rng.IntN(2) == 0 {
				n = 1 + rng.Int64N(3)
			}
			switch open := b.open(late); {
			case rng.IntN(4) == 0:
				b.take(n)
			case len(open) == 0 || rng.IntN(5) > 1:
				b.reserve(n)
			default:
				b.cancel(open[rng.IntN(len(open))])
			}
		}
		b.hold("reserved and cancelled in any order")
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// open returns the reservations that can be cancelled. If late is set, they include those whose time has come.
func (b *bookings) open(late bool) (open []*act) {
	now := time.Now()
	for _, a := range b.acts {
		if a.held != nil && (late || a.first.After(now)) {
			open = append(open, a)
		}
	}
	return open
}
