package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/spend"
)

// TestStart runs the whole program with its stand-in for Redis, in real time.
// The program fails if its account is wrong.
func TestStart(t *testing.T) {
	var out strings.Builder
	if err := start(t.Context(), &out); err != nil {
		t.Fatalf("%v; it printed:\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "denied") || !strings.Contains(out.String(), "tokens in all") {
		t.Errorf("it printed:\n%s", out.String())
	}
}

func TestPlayOnVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := play(t.Context(), &out, redistest.NewBubble(t).Client(nil)); err != nil {
			t.Errorf("%v; it printed:\n%s", err, out.String())
		}
	})
}

// fixed is a model that always uses the same amount, and may return an error.
type fixed struct {
	used int64
	err  error
}

func (f fixed) Complete(context.Context, prompt) (int64, error) { return f.used, f.err }

// at returns an Estimator whose estimate is n.
func at(t *testing.T, n int64) *spend.Estimator {
	e, err := spend.NewEstimator(spend.EstimatorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	e.Observe("model", n)
	return e
}

// TestTheDifferenceIsSettled checks that a call costs what it used, whether it succeeds or fails. The estimate is 100 of
// 1000.
func TestTheDifferenceIsSettled(t *testing.T) {
	oops := errors.New("oops")
	for _, tc := range []struct {
		model fixed
		left  int64
	}{
		{fixed{100, nil}, 900},
		{fixed{30, nil}, 970},
		{fixed{250, nil}, 750},
		{fixed{0, oops}, 1000},
		{fixed{40, oops}, 960},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, err := local.New(hybridlimit.PerHour(1000), local.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := ask(t.Context(), l, at(t, 100), "ann", prompt{500}, tc.model); !errors.Is(err, tc.model.err) {
				t.Errorf("%+v: %v", tc.model, err)
			}
			if res, err := l.Peek(t.Context(), "ann"); err != nil || res.Remaining != tc.left {
				t.Errorf("%+v: %d left, want %d", tc.model, res.Remaining, tc.left)
			}
		})
	}
}

// closing is a model that closes the limiter.
type closing struct {
	fixed
	limiter *local.Limiter
}

func (c closing) Complete(ctx context.Context, p prompt) (int64, error) {
	c.limiter.Close()
	return c.fixed.Complete(ctx, p)
}

// TestUnsettledDifferencesAreTold checks that a difference that could not be settled is an error, also if the call
// failed too.
func TestUnsettledDifferencesAreTold(t *testing.T) {
	oops := errors.New("oops")
	for _, model := range []fixed{{150, nil}, {50, nil}, {150, oops}, {50, oops}} {
		l, err := local.New(hybridlimit.PerHour(1000), local.Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = ask(t.Context(), l, at(t, 100), "ann", prompt{500}, closing{model, l})
		if !errors.Is(err, hybridlimit.ErrClosed) || !errors.Is(err, model.err) && model.err != nil {
			t.Errorf("%+v: %v", model, err)
		}
	}
}

// panics is a model that panics.
type panics struct{}

func (panics) Complete(context.Context, prompt) (int64, error) { panic("oops") }

// TestEstimateStandsAfterAPanic checks that the estimate stays taken after a panic, because the real cost is unknown.
func TestEstimateStandsAfterAPanic(t *testing.T) {
	l, err := local.New(hybridlimit.PerHour(1000), local.Config{})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		_, _, _ = ask(t.Context(), l, at(t, 100), "ann", prompt{500}, panics{})
	}()
	if res, err := l.Peek(t.Context(), "ann"); err != nil || res.Remaining != 900 {
		t.Errorf("%+v, %v", res, err)
	}
}
