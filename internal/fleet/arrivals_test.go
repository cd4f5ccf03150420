package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// TestShapes counts what the streams ask for.
func TestShapes(t *testing.T) {
	const rate, span = 1000.0, 10 * time.Second
	for _, c := range []struct {
		name         string
		load         Load
		want         float64 // calls
		first, later float64 // of them: in the first second, and in the last
	}{
		{"steady", Load{Shape: Steady, Factor: 2}, 20_000, 0.1, 0.1},
		{"on/off", Load{Shape: OnOff, Factor: 2, On: 500 * time.Millisecond, Off: 1500 * time.Millisecond}, 5000, 0.2, 0},
		{"ramp", Load{Shape: Ramp, Factor: 2}, 20_000, 0.01, 0.19},
		{"burst", Load{Shape: Burst, Factor: 2}, 12_000, 0.1, 0.1},
		{"keys", Load{Shape: Steady, Factor: 0.5, Keys: 4, KeyZipf: 1, KeyHigh: 0.6}, 1000 * 10 * (0.6 + 0.48 + 0.32 + 0.24), 0.1, 0.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Scenario{Limit: hybridlimit.PerSecond(rate), Span: span, Load: c.load}
			w := &world{s: s}
			var all, first, later, keys, units float64
			for i, part := range zipf(4, 1) {
				st, last := newStream(w.rng(forCalls, i, 0), s, s.Load.keyLoads(), part), int64(-1)
				for {
					a, ok := st.take()
					if !ok {
						break
					}
					if a.at <= last || a.at >= int64(span) {
						t.Fatalf("a call at %d after %d", a.at, last)
					}
					last = a.at
					all++
					units += float64(a.cost)
					keys += float64(a.key)
					if a.at < int64(time.Second) {
						first++
					}
					if a.at >= int64(span-time.Second) {
						later++
					}
				}
			}
			near := func(what string, got, want float64) {
				if d := math.Abs(got - want); d > 5*math.Sqrt(want)+2 {
					t.Errorf("%s: %.0f, want %.0f", what, got, want)
				}
			}
			near("calls", all, c.want)
			near("in the first second", first, c.want*c.first)
			near("in the last second", later, c.want*c.later)
			if c.load.Keys == 4 {
				near("sum of keys", keys, 1000*10*(0.48+2*0.32+3*0.24))
			}
		})
	}
}

func TestMeter(t *testing.T) {
	b := algo.BucketOf(hybridlimit.TokenBucket(10, time.Second, 5))
	type step struct{ ms, n int64 }
	for _, c := range []struct {
		name  string
		steps []step
		want  float64
	}{
		{"nothing", nil, 0},
		{"a burst", []step{{0, 5}}, 0},
		{"one more", []step{{0, 5}, {0, 1}}, 1},
		{"one more, refilled", []step{{0, 5}, {100, 1}}, 0},
		{"half refilled", []step{{0, 5}, {50, 1}}, 0.5},
		{"never more than full", []step{{10_000, 6}}, 1},
		{"debt is kept", []step{{0, 10}, {100, 1}, {5000, 5}}, 5},
		{"an interval that begins late", []step{{0, 1}, {10_000, 5}, {10_100, 4}}, 3},
	} {
		m := newMeter(b)
		for _, s := range c.steps {
			m.admit(s.ms*1e6, s.n)
		}
		if got := m.excess(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
