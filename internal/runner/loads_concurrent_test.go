package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// plenty refills nothing during a test, and lasts for all its calls.
var plenty = hybridlimit.TokenBucket(1, time.Hour, 1_000_000)

// callers is the number of calls at the same time.
const callers = 200

// ask takes one unit of a key.
func ask(ctx context.Context, r *runner.Runner, key string) error {
	reply, err := r.Batch(ctx, wire.Envelope{}, []wire.Op{{Key: key, Limit: plenty, Op: algo.Op{Asks: []int64{1}}}})
	if err == nil && reply.Answers[0].Granted != 1 {
		err = fmt.Errorf("not granted: %+v", reply)
	}
	return err
}

// used returns the number of units taken of a key.
func used(ctx context.Context, t *testing.T, r *runner.Runner, key string) int64 {
	t.Helper()
	k, err := r.Look(ctx, key, plenty)
	if err != nil {
		t.Fatal(err)
	}
	return k.Debited
}

// site is a Redis in virtual time whose scripts are flushed now and then.
type site struct {
	*redistest.Bubble
	link   *redistest.MemLink
	rdb    *redis.Client
	runner *runner.Runner
}

// inSite runs a test with a message of 1 ms each way.
func inSite(t *testing.T, f func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{Bubble: redistest.NewBubble(t)}
		s.link = s.Link()
		s.link.Latency(time.Millisecond, time.Millisecond)
		s.rdb = s.link.Client(func(o *redis.Options) { o.PoolSize = 2 * callers })
		var err error
		if s.runner, err = runner.New(s.rdb, 0); err != nil {
			t.Fatal(err)
		}
		f(t, s)
		s.runner.Close()
	})
}

// flush makes Redis forget its scripts.
func (s *site) flush(t *testing.T) {
	t.Helper()
	if err := s.Client(nil).ScriptFlush(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// each runs f for n callers at once and returns their errors.
func each(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errs
}

// loads returns the number of sources that were sent.
func (s *site) loads() int { return s.link.Count("EVAL").Seen }

// TestOneLoadForAllCallers checks that calls that find the script missing at the same
// time send its source once, also calls of several Runners of one client. Each of them
// sent it before.
func TestOneLoadForAllCallers(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		second, err := runner.New(s.rdb, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		for round := range 3 {
			s.flush(t)
			began := time.Now()
			for i, err := range each(callers, func(i int) error {
				return ask(t.Context(), []*runner.Runner{s.runner, second}[i%2], "k")
			}) {
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			}
			if n := s.loads(); n != round+1 {
				t.Errorf("after loss %d: %d loads", round+1, n)
			}
			if d := time.Since(began); d > 12*time.Millisecond { // a connection with its handshake, and three exchanges
				t.Errorf("took %v", d)
			}
		}
		if got := used(t.Context(), t, s.runner, "k"); got != 3*callers {
			t.Errorf("%d units were taken", got)
		}
	})
}

// TestLoadsOfRepeatedLosses checks that a process sends no more sources than Redis has
// lost scripts, and that all calls are answered meanwhile.
func TestLoadsOfRepeatedLosses(t *testing.T) {
	losses := time.Duration(12)
	if testenv.Full() {
		losses = 30
	}
	for _, every := range []time.Duration{20 * time.Millisecond, 7 * time.Millisecond, 3 * time.Millisecond} {
		inSite(t, func(t *testing.T, s *site) {
			var calls, flushes atomic.Int64
			ctx, stop := context.WithTimeout(t.Context(), losses*every)
			defer stop()
			var all sync.WaitGroup
			all.Go(func() {
				for ctx.Err() == nil {
					s.flush(t)
					flushes.Add(1)
					time.Sleep(every)
				}
			})
			for i := range 20 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 37 * time.Microsecond) // callers have distinct phases
					for ctx.Err() == nil {
						if err := ask(t.Context(), s.runner, "k"); err != nil {
							t.Error(err)
						}
						calls.Add(1)
						time.Sleep(500 * time.Microsecond)
					}
				})
			}
			all.Wait()
			loads, lost := int64(s.loads()), flushes.Load()
			if loads > lost {
				t.Errorf("%v: %d loads for %d losses", every, loads, lost)
			}
			if loads < lost/4 {
				t.Errorf("%v: %d loads for %d losses: the test lost no scripts in use", every, loads, lost)
			}
			if got := used(t.Context(), t, s.runner, "k"); got != calls.Load() {
				t.Errorf("%v: %d units for %d calls", every, got, calls.Load())
			}
			t.Logf("%v: %d calls, %d losses, %d loads", every, calls.Load(), lost, loads)
		})
	}
}

// TestLoadWithoutAnswer checks that waiting calls get an error as soon as a load fails,
// that no second one follows within a second of the first, and that the next call after
// that is answered.
func TestLoadWithoutAnswer(t *testing.T) {
	for _, tc := range []struct {
		verdict redistest.Verdict
		cause   func(error) bool
		within  time.Duration
	}{
		{redistest.DropRequest(redistest.ThenClose), func(err error) bool { return errors.Is(err, io.EOF) }, 20 * time.Millisecond},
		{redistest.DropRequest(redistest.ThenHang), isTimeout, 420 * time.Millisecond},
	} {
		t.Run(tc.verdict.String(), func(t *testing.T) {
			inSite(t, func(t *testing.T, s *site) {
				r, err := runner.New(s.rdb, 400*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				s.link.Script(redistest.OnEvery("EVAL", tc.verdict))
				began := time.Now()
				for i, err := range each(callers, func(int) error { return ask(t.Context(), r, "k") }) {
					if !tc.cause(err) {
						t.Errorf("call %d: %v", i, err)
					}
				}
				if d := time.Since(began); d > tc.within {
					t.Errorf("took %v", d)
				}
				for time.Since(began) < 990*time.Millisecond {
					if err := ask(t.Context(), r, "k"); !tc.cause(err) {
						t.Errorf("after the load: %v", err)
					}
				}
				if n := s.loads(); n != 1 {
					t.Errorf("%d loads in a second", n)
				}
				s.link.Script(nil)
				time.Sleep(time.Until(began.Add(1100 * time.Millisecond)))
				if err := ask(t.Context(), r, "k"); err != nil {
					t.Errorf("after a second: %v", err)
				}
				if n := s.loads(); n != 2 {
					t.Errorf("%d loads", n)
				}
				if got := used(t.Context(), t, r, "k"); got != 1 {
					t.Errorf("%d units were taken", got)
				}
			})
		})
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// TestLoadWithALostReply checks that a load whose reply is lost costs one call its answer,
// and no other call.
func TestLoadWithALostReply(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		s.link.Script(redistest.OnEvery("EVAL", redistest.DropReply(redistest.ThenClose)))
		failed := 0
		for _, err := range each(callers, func(int) error { return ask(t.Context(), s.runner, "k") }) {
			if errors.Is(err, io.EOF) {
				failed++
			} else if err != nil {
				t.Error(err)
			}
		}
		if n := s.loads(); n != 1 || failed != 1 {
			t.Errorf("%d loads, %d calls without an answer", n, failed)
		}
		if got := used(t.Context(), t, s.runner, "k"); got != callers {
			t.Errorf("%d units were taken", got)
		}
	})
}

// TestALoadThatHangs checks that a call leaves at its own deadline while it waits for the
// load of another call, and that a call that can wait for longer begins a second load one
// second after the first.
func TestALoadThatHangs(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		s.link.Script(redistest.OnNth("EVAL", 0, redistest.DropRequest(redistest.ThenHang)))
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() { // it loads
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := ask(ctx, s.runner, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call that loads: %v", err)
			}
		})
		time.Sleep(20 * time.Millisecond)
		for i := range 20 {
			all.Go(func() {
				end := time.Duration(i+5) * 20 * time.Millisecond
				ctx, cancel := context.WithDeadline(t.Context(), began.Add(end))
				defer cancel()
				if err := ask(ctx, s.runner, "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != end {
					t.Errorf("call %d: %v after %v, want %v", i, err, time.Since(began), end)
				}
			})
			all.Go(func() {
				if err := ask(t.Context(), s.runner, "k"); err != nil {
					t.Errorf("call %d without a deadline: %v", i, err)
				}
			})
		}
		all.Wait()
		if d := time.Since(began); d < time.Second || d > 1020*time.Millisecond {
			t.Errorf("the last call was answered after %v", d)
		}
		if n := s.loads(); n != 2 {
			t.Errorf("%d loads", n)
		}
	})
}

// TestTheCallThatLoadsLeaves checks that the calls that wait are answered when the call
// that loads is cancelled, before its connection is there or after it has sent the source.
func TestTheCallThatLoadsLeaves(t *testing.T) {
	for _, after := range []time.Duration{2500 * time.Microsecond, 5500 * time.Microsecond, 6500 * time.Microsecond} {
		inSite(t, func(t *testing.T, s *site) {
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				if err := ask(ctx, s.runner, "k"); !errors.Is(err, context.Canceled) {
					t.Errorf("%v: the call that loads: %v", after, err)
				}
			})
			time.Sleep(100 * time.Microsecond)
			for i := range 50 {
				all.Go(func() {
					if err := ask(t.Context(), s.runner, "k"); err != nil {
						t.Errorf("%v: call %d: %v", after, i, err)
					}
				})
			}
			time.Sleep(after)
			cancel()
			all.Wait()
			if n := s.loads(); n != 1 {
				t.Errorf("%v: %d loads", after, n)
			}
		})
	}
}

// TestCloseWhileCallsWait checks that Close waits for the calls that wait for a load, and
// that these are answered.
func TestCloseWhileCallsWait(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		s.link.Script(redistest.OnEvery("EVAL", redistest.Delay(300*time.Millisecond)))
		began := time.Now()
		var answered atomic.Int64
		for range 50 {
			go func() {
				if err := ask(t.Context(), s.runner, "k"); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}()
		}
		time.Sleep(100 * time.Millisecond)
		s.runner.Close()
		if d := time.Since(began); d < 300*time.Millisecond || d > 320*time.Millisecond {
			t.Errorf("Close returned after %v", d)
		}
		synctest.Wait()
		if n := answered.Load(); n != 50 {
			t.Errorf("%d calls were answered when Close had returned", n)
		}
		if err := ask(t.Context(), s.runner, "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestALoadThatPanics checks that a panic in a load is an error of all its calls.
func TestALoadThatPanics(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		s.rdb.AddHook(panicking{"eval"})
		r, err := runner.New(s.rdb, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for i, err := range each(callers, func(int) error { return ask(t.Context(), r, "k") }) {
			if !errors.Is(err, wire.ErrReply) {
				t.Errorf("call %d: %v", i, err)
			}
		}
	})
}
