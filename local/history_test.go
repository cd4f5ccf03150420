package local

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func named(tb testing.TB, id string) context.Context {
	tb.Helper()
	ctx, err := hybridlimit.WithRequestID(context.Background(), id)
	if err != nil {
		tb.Fatal(err)
	}
	return ctx
}

// TestHistory checks that a log returns its admissions, with their exact times and
// request ids.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, hybridlimit.SlidingLog(10, time.Minute), Config{})
		start := time.Now()
		trail := func() string {
			t.Helper()
			log, err := l.History(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, a := range log {
				out = append(out, fmt.Sprintf("%v:%d%s", a.At.Sub(start), a.Units, a.RequestID))
			}
			return strings.Join(out, " ")
		}
		take := func(id string, n int64) {
			t.Helper()
			if res, err := l.AllowN(named(t, id), "k", n); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		want := func(want string) {
			t.Helper()
			if got := trail(); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
		want("")
		take("a", 1)
		take("b", 2)
		take("b", 1)
		take("", 1)
		want("0s:1a 0s:3b 0s:1") // admissions of one request in one nanosecond are one entry
		time.Sleep(time.Second)
		if _, err := l.Charge(named(t, "c"), "k", 2); err != nil {
			t.Fatal(err)
		}
		if _, err := l.AllowAtMost(named(t, "d"), "k", 50); err != nil {
			t.Fatal(err)
		}
		if res, err := l.Allow(named(t, "denied"), "k"); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		want("0s:1a 0s:3b 0s:1 1s:2c 1s:3d")
		// A new period holds for later calls; admissions keep their times.
		if err := l.SetLimit(hybridlimit.SlidingLog(20, time.Hour)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		take("", 1)
		take("e", 1)
		want("0s:1a 0s:3b 0s:1 1s:2c 1s:3d 2s:1 2s:1e")
		time.Sleep(58 * time.Second)
		want("1s:2c 1s:3d 2s:1 2s:1e")
		if err := l.SetLimit(hybridlimit.SlidingLog(20, time.Minute)); err != nil {
			t.Fatal(err)
		}
		take("f", 1)
		time.Sleep(59 * time.Second)
		want("1m0s:1f 2s:1 2s:1e") // in the order in which they leave
		if _, err := l.Refund(t.Context(), "k", 2); err != nil {
			t.Fatal(err)
		}
		want("2s:1e") // the units that would leave first are given back first
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		want("")
	})
}

// TestCancelledIsNotInHistory checks that Cancel removes the entry of its own
// reservation, even if other entries have the same time.
func TestCancelledIsNotInHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, hybridlimit.SlidingLog(10, time.Minute), Config{})
		var cancel func(context.Context) error
		for _, id := range []string{"a", "b", "c"} {
			r, err := l.Reserve(named(t, id), "k", 2)
			if err != nil {
				t.Fatal(err)
			}
			if id == "b" {
				cancel = r.Cancel
			}
		}
		if err := cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		log, err := l.History(t.Context(), "k")
		if err != nil || len(log) != 2 || log[0].RequestID != "a" || log[1].RequestID != "c" || log[0].Units != 2 || log[1].Units != 2 {
			t.Errorf("%+v, %v", log, err)
		}
	})
}

func TestHistoryRefuses(t *testing.T) {
	eachAlgorithm(t, 5, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		l := must(t, limit, Config{})
		_, err := l.History(t.Context(), "k")
		if logs := limit.Algorithm == hybridlimit.AlgSlidingLog; logs != (err == nil) || !logs && (!errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), limit.Algorithm.String()+" keeps no log")) {
			t.Error(err)
		}
		if _, err := l.History(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
			t.Error(err)
		}
		if l.Len() != 0 {
			t.Error("History made a key")
		}
		l.Close()
		if _, err := l.History(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}
