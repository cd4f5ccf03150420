package parts_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/parts"
)

// TestLimitsAddUp splits limits into all numbers of parts that Check permits. The rates and bursts of the parts add up
// to those of the key, no two of them differ by more than one unit, and each is a valid limit.
func TestLimitsAddUp(t *testing.T) {
	for _, whole := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(103, time.Second, 57), hybridlimit.PerMinute(100), hybridlimit.FixedWindow(41, time.Hour),
		hybridlimit.SlidingWindow(16, time.Second), hybridlimit.WindowFromUse(99, time.Minute), hybridlimit.LeakyBucket(30, time.Second, 31),
		hybridlimit.CalendarWindow(1000, hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin"}),
	} {
		for of := 2; parts.Check(whole, of, 64) == nil; of++ {
			var rate, burst int64
			low, high := int64(math.MaxInt64), int64(0)
			for nth := 1; nth <= of; nth++ {
				l := parts.Part{Nth: uint16(nth), Of: uint16(of)}.Limit(whole)
				if err := l.Validate(); err != nil {
					t.Errorf("part %d of %d of %v: %v", nth, of, whole, err)
				}
				rate, burst = rate+l.Rate, burst+l.BurstSize()
				low, high = min(low, l.BurstSize()), max(high, l.BurstSize())
			}
			if rate != whole.Rate || burst != whole.BurstSize() || high-low > 1 {
				t.Errorf("%v in %d parts: rate %d, burst %d, of parts %d to %d", whole, of, rate, burst, low, high)
			}
			if of == 64 {
				break
			}
		}
	}
}

// TestCheck refuses what cannot be split. The rate of a part must have an exact arithmetic of its own.
func TestCheck(t *testing.T) {
	exact := hybridlimit.TokenBucket(10_000_000_000, 24*time.Hour, 10_000_000_000)
	if err := exact.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit hybridlimit.Limit
		of    int
		want  error
	}{
		{hybridlimit.PerSecond(4), 4, nil},
		{hybridlimit.PerSecond(4), 5, hybridlimit.ErrInvalid},
		{hybridlimit.PerSecond(4), -1, hybridlimit.ErrInvalid},
		{hybridlimit.PerSecond(100), 17, hybridlimit.ErrInvalid},
		{hybridlimit.Blocked(), 16, nil},
		{hybridlimit.Blocked(), 17, hybridlimit.ErrInvalid},
		{hybridlimit.Concurrent(10), 2, hybridlimit.ErrUnsupported},
		{hybridlimit.SlidingLog(10, time.Second), 1, nil},
		{hybridlimit.SlidingLog(10, time.Second), 2, hybridlimit.ErrUnsupported},
		{exact, 10, nil},
		{exact, 7, hybridlimit.ErrInvalid},
	} {
		if err := parts.Check(c.limit, c.of, 16); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%v in %d parts: %v, want %v", c.limit, c.of, err, c.want)
		}
	}
}

// TestHomesAreSpread gives ten thousand processes a home in each of several keys. Each part has the mean, give or take
// five standard deviations. The homes of a process in two keys are independent.
func TestHomesAreSpread(t *testing.T) {
	const n, of = 10_000, 4
	both := map[[2]uint16]int{}
	for i := range n {
		process := fmt.Sprintf("%032x", i*7919)
		both[[2]uint16{parts.Home(process, "a", of).Nth, parts.Home(process, "b", of).Nth}]++
	}
	for pair, got := range both {
		if mean := float64(n) / of / of; math.Abs(float64(got)-mean) > 5*math.Sqrt(mean) {
			t.Errorf("%d processes have the homes %v, want %v", got, pair, mean)
		}
	}
	if len(both) != of*of {
		t.Errorf("%d pairs of homes", len(both))
	}
	for of := range 2 {
		if p := parts.Home("process", "key", of); p != (parts.Part{}) {
			t.Errorf("of %d parts: %+v", of, p)
		}
	}
}

// TestLooks counts how often a process looks at another part, by its use of its own.
func TestLooks(t *testing.T) {
	const perNs = 100 / 1e9
	part := parts.Part{Nth: 2, Of: 4}
	for _, c := range []struct {
		n                 int64 // processes
		admitted, refused int64 // units in 5 s; the part has 500
		often             float64
	}{
		{1000, 20, 0, 0},
		{1000, 97, 3, 0}, // less than one in twenty
		{1000, 95, 5, 0.25},
		{1000, 10, 5, 0.04},
		{1000, 0, 1000, 2.0 / 250},
		{4, 10, 5, 0.25},
		{10_000, 400, 5000, 0.25},
	} {
		looks, to := 0, map[uint16]int{}
		state := uint64(1)
		draw := func() float64 {
			state = state*6364136223846793005 + 1442695040888963407
			return float64(state>>11) / (1 << 53)
		}
		w, now := parts.NewWatch(0), int64(0)
		const windows = 20_000
		for range windows {
			w.Count(c.admitted, false)
			w.Count(c.refused, true)
			if _, ok := w.Look(part, perNs, c.n, draw, now+4e9); ok {
				t.Fatal("looks before the window is over")
			}
			now += 5e9
			if other, ok := w.Look(part, perNs, c.n, draw, now); ok {
				looks++
				to[other.Nth]++
			}
		}
		if got := float64(looks) / windows; math.Abs(got-c.often) > 4*math.Sqrt(c.often/windows) {
			t.Errorf("%+v: looks after %.4f of all windows", c, got)
		}
		if looks > 0 && (len(to) != 3 || to[2] > 0) {
			t.Errorf("%+v: looks at %v", c, to)
		}
	}
}

// TestJoin joins the states of three parts, of which Redis has two.
func TestJoin(t *testing.T) {
	limit, at := hybridlimit.PerSecond(30), time.Unix(100, 0)
	got := parts.Join(limit, []hybridlimit.KeyState{
		{Found: true, Debt: 2, RetryAfter: 3 * time.Second, ResetAfter: 4 * time.Second, Debited: 12, Born: at.Add(time.Second), TTL: time.Minute},
		{Left: 10},
		{Found: true, Left: 1, Leased: 5, Debited: 4, ResetAfter: time.Second, Born: at, TTL: time.Second},
	})
	want := hybridlimit.KeyState{
		Limit: limit, Found: true, Left: 11, Debt: 2, ResetAfter: 4 * time.Second, Debited: 16, Leased: 5, Born: at, TTL: time.Minute,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
