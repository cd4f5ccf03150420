package refresh

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestDue checks that a mark is due after half to the whole of the interval, and stays due until it wraps around.
func TestDue(t *testing.T) {
	for _, every := range []time.Duration{Shortest, 37 * time.Millisecond, time.Second, time.Minute, 72 * time.Hour} {
		r := New(every)
		for i := range int64(2000) {
			asked := i * 977 * (int64(every) / 100)
			m := r.Next(asked)
			if m == 0 {
				t.Fatalf("%v: the mark of %d is zero", every, asked)
			}
			at := r.At(m, asked)
			// The first unit may have begun before asked, a unit may not divide the interval, and a mark is not 0.
			if after := at - asked; after > int64(every) || after < int64(every)/2-2<<r.shift-int64(every)%(1<<r.shift) {
				t.Fatalf("%v: due after %v", every, time.Duration(after))
			}
			if r.At(m.With(3), asked) != at || m.With(3).Note() != 3 || m.With(3).With(0) != m {
				t.Fatalf("%v: a note changes the time", every)
			}
			if v := m.With(2).Void(); !r.Due(v, asked) || v.Note() != 2 {
				t.Fatalf("%v: %x voided is %x", every, m, v)
			}
			if r.Due(m, at-1) {
				t.Fatalf("%v: due before %v", every, time.Duration(at-asked))
			}
			for _, late := range []int64{0, 1, int64(every), r.Wraps() / 2, r.Wraps() - 1<<r.shift} {
				if now := at + late; !r.Due(m, now) || r.At(m, now) != now {
					t.Fatalf("%v: not due %v after its time", every, time.Duration(late))
				}
			}
		}
	}
}

// TestMarksAreSpread checks that the marks of one moment are spread over half of the interval.
func TestMarksAreSpread(t *testing.T) {
	r := New(0)
	perSecond := map[int64]int{}
	const keys = 30_000
	for range keys {
		perSecond[r.At(r.Next(0), 0)/int64(time.Second)]++
	}
	for s, n := range perSecond {
		if n > 2*keys/30 {
			t.Errorf("%d of %d keys are due in second %d, want about %d", n, keys, s, keys/30)
		}
	}
	if len(perSecond) < 30 {
		t.Errorf("the keys are due in %d seconds, want 30", len(perSecond))
	}
}

func TestNever(t *testing.T) {
	r := New(hybridlimit.Never)
	m := r.Next(math.MaxInt64 / 1000)
	if r.Due(m, math.MaxInt64/4) || r.At(m, 0) <= 0 || r.Wraps() <= 0 {
		t.Errorf("a mark of %+v is due at %d, and wraps after %d", r, r.At(m, 0), r.Wraps())
	}
	if !r.Due(0, 1) {
		t.Error("the zero mark is not due")
	}
}

func TestCheck(t *testing.T) {
	for every, want := range map[time.Duration]string{
		-1: "must not be negative", time.Millisecond: "must be at least 10ms, or 0 for 1m0s", 0: "", Shortest: "", hybridlimit.Never: "",
	} {
		var bad hybridlimit.Violations
		Check(&bad, every)
		err := bad.Err("x")
		switch {
		case want == "" && err != nil:
			t.Errorf("%v: %v", every, err)
		case want != "" && (!errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Config.LimitRefresh") || !strings.Contains(err.Error(), want)):
			t.Errorf("%v: %v, want %q", every, err, want)
		}
	}
}
