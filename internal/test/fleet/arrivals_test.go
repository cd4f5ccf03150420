package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestShapes counts the calls of the streams.
func TestShapes(t *testing.T) {
	const rate, span = 1000.0, 10 * time.Second
	for _, c := range []struct {
		name         string
		load         Load
		want         float64 // calls
		first, later float64 // of these: in the first second, and in the last
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
