package conformance

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// independentKeys checks that the use of one key does not change another key.
func independentKeys(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	s.drain("a")
	s.full("b", "only a was used")
	s.drain("a") // no unit came back to a
	s.full("c", "only a and b were used")
}

// keysAreBytes checks that a key may have any bytes, and that different bytes are different keys.
func keysAreBytes(t *testing.T, spec Spec) {
	s := still(t, spec, 1)
	longest := strings.Repeat("x", s.spec.MaxKeyBytes-1)
	keys := []string{
		"a", "A", "a ", " a", " ", "a\x00", "a\x00b", "\x00", "\t", "a\n", "\n", "a\r\n", "a\n\n",
		"{a}", "{a}b", "b{a}", "{", "}", "{}", "{}a", "}{", "a:b", "a::b", ":", "a}:{b",
		"é", "e\u0301", "\u202e", "\ufeffa", "\ufffd", "\xff", "\xff\xfe", "\xc3\x28", "\xed\xa0\x80",
		"*", "?", "[a]", "%s", "%00", "a/b", "../a", `a\b`, `"`, "'", "-1", "0", "00", "nil", "$a", "\x7f",
		longest + "x", longest + "y", "y" + longest,
	}
	for _, k := range keys {
		if res := s.allow(k, 1); !res.Allowed {
			t.Errorf("key %.20q (%d bytes) was denied its only unit, as if another key had taken it: %+v", k, len(k), res)
		}
	}
	for _, k := range keys {
		s.drain(k) // the use of each key still counts
	}
}

// badInput checks for each verb that an invalid request gets its own error and takes nothing.
func badInput(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	long := strings.Repeat("x", s.spec.MaxKeyBytes+1)
	for _, v := range s.verbs() {
		for _, tc := range []struct {
			key  string
			n    int64
			want error
		}{
			{"", 1, hybridlimit.ErrEmptyKey},
			{"", 6, hybridlimit.ErrEmptyKey},
			{long, 1, hybridlimit.ErrKeyTooLong},
			{long + long, 6, hybridlimit.ErrKeyTooLong},
			{"k", 0, hybridlimit.ErrCost},
			{"k", -1, hybridlimit.ErrCost},
			{"k", -5, hybridlimit.ErrCost},
			{"k", math.MinInt64, hybridlimit.ErrCost},
		} {
			if tc.n < 1 && !v.cost {
				continue
			}
			res, err := v.do(context.Background(), tc.key, tc.n)
			if !errors.Is(err, tc.want) || res.Allowed || res.Granted != 0 {
				t.Errorf("%s(%.5q, %d) = %+v, %v, want %v", v.name, tc.key, tc.n, res, err, tc.want)
			}
		}
	}
	if !spec.partial {
		res, err := s.lim.AllowLimit(context.Background(), "k", 1, hybridlimit.Limit{})
		if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Limit.Rate (0)") || res.Allowed {
			t.Errorf("AllowLimit under the zero Limit = %+v, %v", res, err)
		}
	}
	s.full("k", "bad input takes nothing")
	if _, err := s.lim.AllowN(context.Background(), "k", -5); err == nil {
		t.Error("a negative cost was accepted")
	}
	s.drain("k") // the negative cost gave nothing back
}

// endedContext checks that a call that fails because its ctx has ended takes nothing. A limiter that does not wait may
// also make a decision.
func endedContext(t *testing.T, spec Spec) {
	s := still(t, spec, 20)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel2 := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel2()
	for _, ctx := range []context.Context{cancelled, expired} {
		for range 8 {
			res, err := s.lim.Allow(ctx, "k")
			s.answered("k", res, err, ctx.Err())
		}
	}
	s.drain("k")
	if got, want := s.total("k"), s.limit.BurstSize(); spec.Exact && got != want {
		t.Errorf("%d of %d units were admitted: failed calls took the rest", got, want)
	}
	if s.total("k") == 0 {
		t.Error("no unit was admitted")
	}
}
