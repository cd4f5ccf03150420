package limittest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/limittest"
)

var (
	_ hybridlimit.Limiter = (*limittest.Script)(nil)
	_ hybridlimit.Limiter = (*limittest.Recorder)(nil)
)

func TestAllowAllAdmits(t *testing.T) {
	l := limittest.AllowAll()
	for _, n := range []int64{1, 1 << 60} {
		if res, err := l.AllowN(t.Context(), "k", n); err != nil || !res.Allowed || res.Granted != n || res.RetryAfter != 0 || res.Remaining <= 0 {
			t.Errorf("%d units: %+v, %v", n, res, err)
		}
	}
	if res, err := l.Allow(t.Context(), "k"); err != nil || res.Granted != 1 {
		t.Errorf("Allow: %+v, %v", res, err)
	}
}

func TestDenyAllDenies(t *testing.T) {
	for _, after := range []time.Duration{time.Nanosecond, time.Minute, hybridlimit.Never} {
		res, err := limittest.DenyAll(after).Allow(t.Context(), "k")
		if err != nil || res.Allowed || res.Granted != 0 || res.RetryAfter != after {
			t.Errorf("%v: %+v, %v", after, res, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a denial without RetryAfter was made")
		}
	}()
	limittest.DenyAll(0)
}

// The limiters return the errors of real limiters.
func TestBadInputIsRefused(t *testing.T) {
	script := limittest.Play(hybridlimit.Result{Allowed: true})
	for name, l := range map[string]hybridlimit.Limiter{
		"AllowAll": limittest.AllowAll(), "DenyAll": limittest.DenyAll(1), "Script": script, "Recorder": limittest.Record(nil),
	} {
		for _, tc := range []struct {
			key  string
			n    int64
			want error
		}{
			{"", 1, hybridlimit.ErrEmptyKey},
			{"k", 0, hybridlimit.ErrCost},
			{"k", -1, hybridlimit.ErrCost},
			{strings.Repeat("k", adapter.DefaultMaxKeyBytes+1), 1, hybridlimit.ErrKeyTooLong},
		} {
			if res, err := l.AllowN(t.Context(), tc.key, tc.n); !errors.Is(err, tc.want) || res.Allowed {
				t.Errorf("%s, %.5q, %d: %+v, %v", name, tc.key, tc.n, res, err)
			}
		}
	}
	if script.Left() != 1 {
		t.Error("a bad call used an answer up")
	}
}

func TestScriptGivesItsAnswersInTurn(t *testing.T) {
	oops := errors.New("oops")
	s := limittest.PlaySteps(
		limittest.Step{Result: hybridlimit.Result{Allowed: true, Remaining: 1}},
		limittest.Step{Err: oops},
		limittest.Step{Result: hybridlimit.Result{RetryAfter: time.Second}},
	)
	if res, err := s.Allow(t.Context(), "a"); err != nil || !res.Allowed || res.Remaining != 1 {
		t.Errorf("first: %+v, %v", res, err)
	}
	if _, err := s.AllowN(t.Context(), "b", 3); !errors.Is(err, oops) {
		t.Errorf("second: %v", err)
	}
	if res, err := s.Allow(t.Context(), "c"); err != nil || res.Allowed || res.RetryAfter != time.Second || s.Left() != 0 {
		t.Errorf("third: %+v, %v", res, err)
	}
	for range 2 {
		if res, err := s.Allow(t.Context(), "d"); !errors.Is(err, limittest.ErrScriptOver) || res.Allowed {
			t.Errorf("past the end: %+v, %v", res, err)
		}
	}
}

func TestRecorderNotesCalls(t *testing.T) {
	r := limittest.Record(limittest.Play(hybridlimit.Result{Allowed: true, Granted: 1}))
	r.Allow(t.Context(), "ann")
	r.AllowN(t.Context(), "bob", 3)
	calls := r.Calls()
	if len(calls) != 2 || calls[0].Key != "ann" || calls[0].N != 1 || !calls[0].Result.Allowed || calls[0].Err != nil ||
		calls[1].Key != "bob" || calls[1].N != 3 || !errors.Is(calls[1].Err, limittest.ErrScriptOver) {
		t.Errorf("%+v", calls)
	}
	if keys := r.Keys(); len(keys) != 2 || keys[1] != "bob" {
		t.Errorf("%q", keys)
	}
	calls[0].Key = "mallory"
	if r.Calls()[0].Key != "ann" {
		t.Error("the slice is shared")
	}
	if r.Reset(); len(r.Calls()) != 0 {
		t.Error("Reset keeps calls")
	}
}
