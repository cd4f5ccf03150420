package waiting

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// caller returns a caller for a key of a limit with a unit each 100 ms and a burst of 1, in a fleet of four.
func caller(ls *Lines, key string) Caller {
	each := 100 * time.Millisecond
	return Caller{
		Package: "p", Key: key, N: 1, Longest: time.Hour, Lines: ls, Each: &each,
		Turn: func() (time.Duration, time.Duration) { return 4 * each, each },
	}
}

// answers returns a Book that gives these answers, one after the other.
func answers(all ...hybridlimit.Result) Book {
	return func(time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
		res := all[0]
		all = all[1:]
		if !res.Allowed {
			return res, nil, nil
		}
		return res, func(context.Context) error { return nil }, nil
	}
}

func delayed(d time.Duration) hybridlimit.Result { return hybridlimit.Result{Allowed: true, Delay: d} }

func refused(d time.Duration) hybridlimit.Result { return hybridlimit.Result{RetryAfter: d, Limit: 1} }

// TestLinesAreBounded checks that keys that were served leave no line for longer than the turn of their process, and never more
// than mostIdle.
func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls Lines
		for i := range 3 * mostIdle {
			l, turn := ls.join(fmt.Sprint(i), 1, time.Time{})
			ls.yield("", l, time.Second)
			ls.leave(fmt.Sprint(i), l, turn)
		}
		if n := len(ls.keys); n > mostIdle || n < mostIdle/2 || ls.idle != n || int(ls.some.Load()) != n {
			t.Errorf("%d lines, %d idle, %d counted", n, ls.idle, ls.some.Load())
		}
		time.Sleep(2 * time.Second)
		for i := range mostIdle + 1 {
			l, turn := ls.join(fmt.Sprint("later ", i), 1, time.Time{})
			ls.yield("", l, time.Nanosecond)
			ls.leave(fmt.Sprint("later ", i), l, turn)
		}
		for key := range ls.keys {
			if l, turn := ls.join(key, 1, time.Time{}); true {
				time.Sleep(time.Nanosecond)
				ls.leave(key, l, turn)
			}
		}
		if n := len(ls.keys); n > 0 || ls.idle != 0 || ls.some.Load() != 0 {
			t.Errorf("%d lines stay, %d idle, %d counted", n, ls.idle, ls.some.Load())
		}
	})
}

// TestTurnWithoutAPlace checks that a call which found no other one waiting leaves their turn to other processes too. Cause: a
// process whose calls had all booked ahead had no line, and booked each unit at the moment at which it came back.
func TestTurnWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls Lines
		began := time.Now()
		for i, left := range []time.Duration{0, 350 * time.Millisecond} { // until the next turn, which began when the call was booked
			if _, err := caller(&ls, "k").Wait(t.Context(), func(time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
				if took := time.Since(began); took < left {
					t.Errorf("call %d booked after %v", i, took)
				}
				return delayed(300 * time.Millisecond), func(context.Context) error { return nil }, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestGivenBackEndsTheTurn checks that a call that is cancelled while it waits for its units makes no later call wait for them.
func TestGivenBackEndsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls Lines
		ctx, cancel := context.WithCancel(t.Context())
		go caller(&ls, "k").Wait(ctx, answers(refused(0), delayed(time.Hour)))
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		began := time.Now()
		soon, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if _, err := caller(&ls, "k").Wait(soon, answers(delayed(0))); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestDeadlinesBehindOthers checks which calls behind others fail at once: those that cannot be served in time.
func TestDeadlinesBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls Lines
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := make(chan struct{})
		go func() {
			defer close(first)
			caller(&ls, "k").Wait(ctx, answers(refused(time.Second), delayed(0)))
		}()
		synctest.Wait()
		began := time.Now()
		for _, tc := range []struct {
			within time.Duration
			fails  bool
		}{{900 * time.Millisecond, true}, {1050 * time.Millisecond, true}, {1500 * time.Millisecond, false}} {
			soon, end := context.WithTimeout(t.Context(), tc.within)
			done := make(chan error, 1)
			go func() {
				_, err := caller(&ls, "k").Wait(soon, answers(delayed(0)))
				done <- err
			}()
			synctest.Wait()
			select {
			case err := <-done:
				if !tc.fails || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 0 {
					t.Errorf("within %v: %v after %v", tc.within, err, time.Since(began))
				}
			default:
				if tc.fails {
					t.Errorf("within %v: waits", tc.within)
				}
			}
			defer end()
		}
		<-first
		time.Sleep(time.Second)
	})
}
