package limittest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// report is code under test: it runs one report at a time for each user.
func report(ctx context.Context, running hybridlimit.Acquirer, user string) string {
	permit, res, err := running.Acquire(ctx, user)
	if err != nil || !res.Allowed {
		return "try again later"
	}
	defer permit.Release()
	return "the report"
}

func ExampleRecordPermits() {
	running := limittest.RecordPermits(nil)
	fmt.Println(report(context.Background(), running, "ann"))
	fmt.Println("held at the end:", running.Held(), "for", running.Calls()[0].Key)
	// Output:
	// the report
	// held at the end: 0 for ann
}

// A forgotten Release is found, with the key of its call.
func ExamplePermitRecorder_Leaked() {
	running := limittest.RecordPermits(nil)
	forgets := func(user string) { _, _, _ = running.Acquire(context.Background(), user) }
	report(context.Background(), running, "ann")
	forgets("bob")
	for _, call := range running.Leaked() {
		fmt.Printf("%d permit of %s\n", call.N, call.Key)
	}
	// Output:
	// 1 permit of bob
}

// A test of each answer of a limiter needs no real one.
func ExamplePlayPermits() {
	running := limittest.PlayPermits(
		hybridlimit.Result{Allowed: true, Granted: 1, Limit: 1},
		hybridlimit.Result{Limit: 1, RetryAfter: time.Second},
	)
	fmt.Println(report(context.Background(), running, "ann"))
	fmt.Println(report(context.Background(), running, "ann"))
	// Output:
	// the report
	// try again later
}

// Code that acquires permits has to expect an error.
func ExamplePlayPermitSteps() {
	running := limittest.RecordPermits(limittest.PlayPermitSteps(
		limittest.Step{Err: hybridlimit.ErrTooManyKeys},
		limittest.Step{Result: hybridlimit.Result{Allowed: true, Granted: 1, Limit: 1}},
	))
	fmt.Println(report(context.Background(), running, "ann"))
	fmt.Println(report(context.Background(), running, "ann"))
	fmt.Println("held at the end:", running.Held(), "of", len(running.Calls()), "calls")
	// Output:
	// try again later
	// the report
	// held at the end: 0 of 2 calls
}

func TestPermitScriptGivesItsAnswersInTurn(t *testing.T) {
	oops := errors.New("oops")
	s := limittest.PlayPermitSteps(
		limittest.Step{Result: hybridlimit.Result{Allowed: true, Granted: 2, Remaining: 1}},
		limittest.Step{Result: hybridlimit.Result{Allowed: true}, Err: oops},
		limittest.Step{Result: hybridlimit.Result{RetryAfter: time.Second}},
	)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		key  string
		n    int64
		want error
	}{
		"an empty key": {t.Context(), "", 1, hybridlimit.ErrEmptyKey},
		"a long key":   {t.Context(), strings.Repeat("k", adapter.DefaultMaxKeyBytes+1), 1, hybridlimit.ErrKeyTooLong},
		"no permit":    {t.Context(), "k", 0, hybridlimit.ErrCost},
		"an ended ctx": {ended, "k", 1, context.Canceled},
	} {
		if p, res, err := s.AcquireN(tc.ctx, tc.key, tc.n); !errors.Is(err, tc.want) || res != (hybridlimit.Result{}) || p != (hybridlimit.Permit{}) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if _, err := s.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnsupported) {
		t.Errorf("Allow: %v", err)
	}
	if _, err := s.AllowN(t.Context(), "k", 2); !errors.Is(err, hybridlimit.ErrUnsupported) {
		t.Errorf("AllowN: %v", err)
	}
	if s.Left() != 3 {
		t.Errorf("%d answers are left of 3: a bad call used one up", s.Left())
	}
	p, res, err := s.AcquireN(t.Context(), "a", 2)
	if err != nil || !res.Allowed || res.Granted != 2 || res.Remaining != 1 || p == (hybridlimit.Permit{}) {
		t.Errorf("first: %+v, %v", res, err)
	}
	p.Release()
	for _, want := range []error{oops, nil, limittest.ErrScriptOver, limittest.ErrScriptOver} {
		if p, _, err := s.Acquire(t.Context(), "b"); !errors.Is(err, want) || p != (hybridlimit.Permit{}) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if s.Left() != 0 {
		t.Errorf("%d answers are left", s.Left())
	}
}

func TestPermitRecorder(t *testing.T) {
	calls, err := local.NewConcurrency(hybridlimit.Concurrent(3), local.ConcurrencyConfig{Name: "running"})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*limittest.PermitRecorder{"a real limiter": limittest.RecordPermits(calls), "none": limittest.RecordPermits(nil)} {
		permit, res, err := r.AcquireN(t.Context(), "k", 2)
		if err != nil || !res.Allowed || res.Granted != 2 || r.Held() != 2 {
			t.Errorf("%s: %+v, %v, %d held", name, res, err, r.Held())
		}
		_, res, err = r.AcquireN(t.Context(), "k", 2)
		if err != nil || res.Allowed != (name == "none") {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		held := r.Held()
		copied := permit
		permit.Release()
		copied.Release()
		if r.Held() != held-2 {
			t.Errorf("%s: %d held after a release of 2 of %d", name, r.Held(), held)
		}
		if _, _, err := r.Acquire(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
			t.Errorf("%s: an empty key: %v", name, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := r.Acquire(gone, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a cancelled call: %v", name, err)
		}
		for _, allow := range []func() (hybridlimit.Result, error){
			func() (hybridlimit.Result, error) { return r.Allow(t.Context(), "k") },
			func() (hybridlimit.Result, error) { return r.AllowN(t.Context(), "k", 1) },
		} {
			if _, err := allow(); !errors.Is(err, hybridlimit.ErrUnsupported) {
				t.Errorf("%s: Allow: %v", name, err)
			}
		}
		if got := r.Calls(); len(got) != 4 || got[0].N != 2 || got[3].Err == nil {
			t.Errorf("%s: %+v", name, got)
		}
		if r.Reset(); len(r.Calls()) != 0 {
			t.Errorf("%s: calls after Reset", name)
		}
	}
}
