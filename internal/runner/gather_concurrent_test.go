package runner_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// TestABadOpRefusesNoOtherCaller checks that Redis's refusal of a caller's op is the error
// of that caller only, and that the ops of the others are applied once.
func TestABadOpRefusesNoOtherCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := redistest.NewBubble(t).Link()
		r, err := runner.New(link.Client(nil), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		g, limit := r.Gather(1, time.Second, nil), hybridlimit.PerHour(100)
		op := func(key string, n int64) wire.Op {
			return wire.Op{Key: key, Limit: limit, Op: algo.Op{Asks: []int64{n}}}
		}
		bad := op("bad", 1)
		bad.Limit.Rate, bad.Limit.Burst = 1<<62, 1<<62 // the script cannot count so many
		ask := func(op wire.Op) (wire.Answer, error) {
			ans, _, err := g.Ask(t.Context(), 0, op)
			return ans, err
		}
		if _, err := ask(bad); !errors.Is(err, wire.ErrRefused) {
			t.Fatalf("the bad op alone: %v", err)
		}
		link.Latency(10*time.Millisecond, 10*time.Millisecond)
		type result struct {
			wire.Answer
			err error
		}
		ops := []wire.Op{op("first", 1), op("a", 1), op("a", 1), bad, op("b", 5), bad}
		got := make([]result, len(ops))
		var wg sync.WaitGroup
		for i, op := range ops {
			wg.Go(func() { got[i].Answer, got[i].err = ask(op) })
			synctest.Wait()
		}
		wg.Wait()
		for i, want := range []int64{1, 1, 1, 0, 5, 0} {
			if r := got[i]; r.Granted != want || errors.Is(r.err, wire.ErrRefused) != (want == 0) || want > 0 && r.err != nil {
				t.Errorf("op %d: %+v", i, r)
			}
		}
		scale := algo.ScaleOf(limit)
		for key, want := range map[string]int64{"first": 99, "a": 98, "b": 95} {
			if ans, err := ask(wire.Op{Key: key, Limit: limit}); err != nil || scale.Units(ans.Level) != want {
				t.Errorf("%s: %+v, %v", key, ans, err)
			}
		}
	})
}
