package refresh

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// TestNext checks that a deadline comes after half to the whole of the interval, and that notes leave it alone.
func TestNext(t *testing.T) {
	for _, every := range []time.Duration{Shortest, 37 * time.Millisecond, time.Second, time.Minute, 72 * time.Hour} {
		for i := range int64(2000) {
			asked := i * 977 * (int64(every) / 100)
			d := Next(every, asked)
			after := time.Duration(d.At() - asked)
			if d == 0 || after > every || after < every/2-noteBits {
				t.Fatalf("%v: due after %v", every, after)
			}
			if d.Note() != 0 || d.With(3).At() != d.At() || d.With(3).Note() != 3 || d.With(3).With(0) != d {
				t.Fatalf("%v: a note changes the time", every)
			}
			if v := d.With(2).Void(); !v.Due(0) || v.Note() != 2 {
				t.Fatalf("%v: %x voided is %x", every, d, v)
			}
			if d.Due(d.At()-1) || !d.Due(d.At()) || !d.Due(math.MaxInt64) {
				t.Fatalf("%v: due before its time, or not from then on", every)
			}
		}
	}
}

// TestDeadlinesAreSpread checks that the deadlines of one moment are spread over half of the interval.
func TestDeadlinesAreSpread(t *testing.T) {
	perSecond := map[int64]int{}
	const keys = 30_000
	for range keys {
		perSecond[Next(0, 0).At()/int64(time.Second)]++
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
	for _, now := range []int64{0, 1, math.MaxInt64 / 2, math.MaxInt64 - 1} {
		if d := Next(hybridlimit.Never, now); d.Due(math.MaxInt64/4) || d.Note() != 0 {
			t.Errorf("asked at %d: due at %d", now, d.At())
		}
	}
	if !Deadline(0).Due(0) {
		t.Error("the zero deadline is not due")
	}
}

func TestCheck(t *testing.T) {
	for every, want := range map[time.Duration]string{
		-1: "must not be negative", time.Millisecond: "must be at least 10ms, or 0 for 1m0s", 0: "", Shortest: "", hybridlimit.Never: "",
	} {
		var bad adapter.Violations
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
