package global_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// spread has three limits whose keys have different tags, and are asked for by a message each.
type spread struct {
	*scene
	limits []*global.Limiter
	asks   []hybridlimit.Ask
}

func inSpread(t *testing.T, alter func(i int, limit *hybridlimit.Limit, cfg *global.Config), f func(t *testing.T, s spread)) {
	t.Helper()
	inBubble(t, still(1), global.Config{}, defaults, func(t *testing.T, s *scene) {
		rdb := s.link.Client(defaults)
		names := lua.Names{Tags: 16}
		byTag := map[int]string{}
		for i := range 200 {
			byTag[names.Tag(fmt.Sprint("k", i))] = fmt.Sprint("k", i)
		}
		sp := spread{scene: s}
		for i := range 3 {
			limit, cfg := still(5), global.Config{Name: fmt.Sprint("l", i)}
			if alter != nil {
				alter(i, &limit, &cfg)
			}
			l := newLimiter(t, rdb, limit, cfg)
			l.Apart()
			sp.limits = append(sp.limits, l)
			sp.asks = append(sp.asks, hybridlimit.Ask{Limiter: l, Key: byTag[3*i], N: 2})
			allow(t, l, "warm", 1)
		}
		f(t, sp)
	})
}

// lefts returns the units that each limit has left.
func (s spread) lefts() string {
	s.link.Script(nil)
	var out []int64
	for _, a := range s.asks {
		out = append(out, left(s.t, a.Limiter.(*global.Limiter), a.Key))
	}
	return fmt.Sprint(out)
}

// on gives a verdict to the nth message for a limit.
func (s spread) on(limit, nth int, v redistest.Verdict) {
	seen := 0
	s.link.Script(func(_ int, cmd []string) redistest.Verdict {
		if !strings.EqualFold(cmd[0], "EVALSHA") || !strings.Contains(cmd[3], fmt.Sprintf(":l%d:", limit)) {
			return redistest.Forward()
		}
		if seen++; seen-1 != nth {
			return redistest.Forward()
		}
		return v
	})
}

// TestAllowAllUnanswered checks that a lost message costs at most its own units: the units
// of the other messages are given back.
func TestAllowAllUnanswered(t *testing.T) {
	for _, tc := range []struct {
		name    string
		verdict redistest.Verdict
		nth     int
		left    string
	}{
		{"the first request", redistest.DropRequest(redistest.ThenClose), 0, "[5 5 5]"},
		{"the second request", redistest.DropRequest(redistest.ThenClose), 1, "[5 5 5]"},
		{"the second reply", redistest.DropReply(redistest.ThenClose), 1, "[5 3 5]"},
		{"the last reply", redistest.DropReply(redistest.ThenHang), 2, "[5 5 3]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inSpread(t, nil, func(t *testing.T, s spread) {
				s.on(tc.nth, 0, tc.verdict)
				began := time.Now()
				res, err := hybridlimit.AllowAll(t.Context(), s.asks...)
				wantErr(t, err, hybridlimit.ErrUnavailable)
				var notReturned *global.NotReturnedError
				if res.Allowed || res.Policy != fmt.Sprint("l", tc.nth) || res.Source != hybridlimit.SourceFallback || errors.As(err, &notReturned) {
					t.Errorf("%+v, %v", res, err)
				}
				if d := time.Since(began); d > 250*time.Millisecond {
					t.Errorf("took %v", d)
				}
				if got := s.lefts(); got != tc.left {
					t.Errorf("left %s, want %s", got, tc.left)
				}
			})
		})
	}
}

// TestAllowAllNotReturned checks that the error names the units that were not given back.
func TestAllowAllNotReturned(t *testing.T) {
	inSpread(t, nil, func(t *testing.T, s spread) {
		allow(t, s.limits[2], s.asks[2].Key, 5)
		s.on(0, 1, redistest.DropRequest(redistest.ThenHang)) // the message that gives units back
		began := time.Now()
		res, err := hybridlimit.AllowAll(t.Context(), s.asks...)
		var e *global.NotReturnedError
		if res.Allowed || res.Policy != "l2" || res.Source != hybridlimit.SourceRedis || res.RetryAfter != 2*time.Hour || !errors.As(err, &e) {
			t.Fatalf("%+v, %v", res, err)
		}
		wantErr(t, err, hybridlimit.ErrUnavailable, hybridlimit.ErrUnavailable)
		if len(e.Asks) != 1 || !slices.Contains(s.asks[:2], e.Asks[0]) || !strings.Contains(err.Error(), fmt.Sprintf("2 units of %q (%s)", e.Asks[0].Key, []string{"l0", "l1"}[slices.Index(s.asks, e.Asks[0])])) {
			t.Errorf("%v", err)
		}
		if d := time.Since(began); d != 250*time.Millisecond {
			t.Errorf("took %v", d)
		}
		want := []string{"[3 5 0]", "[5 3 0]"}[slices.Index(s.asks, e.Asks[0])]
		if got := s.lefts(); got != want {
			t.Errorf("left %s, want %s", got, want)
		}
	})
}

// TestAllowAllContextEnds checks that the units of answered messages are given back if ctx
// ends before another one is answered.
func TestAllowAllContextEnds(t *testing.T) {
	inSpread(t, nil, func(t *testing.T, s spread) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		defer cancel()
		s.on(2, 0, redistest.DelayReply(50*time.Millisecond))
		res, err := hybridlimit.AllowAll(ctx, s.asks...)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, hybridlimit.ErrUnavailable) || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		time.Sleep(time.Second)
		if got := s.lefts(); got != "[5 5 3]" {
			t.Errorf("left %s", got)
		}
		ended, stop := context.WithCancel(t.Context())
		stop()
		before := s.lefts()
		if _, err := hybridlimit.AllowAll(ended, s.asks...); !errors.Is(err, context.Canceled) || s.lefts() != before {
			t.Errorf("%v, left %s", err, s.lefts())
		}
	})
}

// TestAllowAllFailOpen checks that FailOpen of one limit does not admit for the others:
// they still count, and may deny.
func TestAllowAllFailOpen(t *testing.T) {
	for _, tc := range []struct {
		name    string
		open    []int
		used    int // index of the limit without units; -1: none
		allowed bool
		policy  string
		left    string
	}{
		{"all of them", []int{0, 1, 2}, -1, true, "l1", "[3 5 3]"},
		{"the lost one", []int{1}, -1, true, "l1", "[3 5 3]"},
		{"others", []int{0, 2}, -1, false, "l1", "[5 5 5]"},
		{"the lost one, and one denies later", []int{1}, 2, false, "l2", "[5 5 0]"},
		{"the lost one, and another denies", []int{1}, 0, false, "l0", "[0 5 5]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inSpread(t, func(i int, _ *hybridlimit.Limit, cfg *global.Config) { cfg.FailOpen = slices.Contains(tc.open, i) }, func(t *testing.T, s spread) {
				if tc.used >= 0 {
					allow(t, s.limits[tc.used], s.asks[tc.used].Key, 5)
				}
				s.on(1, 0, redistest.DropRequest(redistest.ThenClose))
				res, err := hybridlimit.AllowAll(t.Context(), s.asks...)
				if res.Allowed != tc.allowed || res.Policy != tc.policy || !errors.Is(err, hybridlimit.ErrUnavailable) {
					t.Errorf("%+v, %v", res, err)
				}
				if got := s.lefts(); got != tc.left {
					t.Errorf("left %s, want %s", got, tc.left)
				}
			})
		})
	}
}

// TestAllowAllGivesBackWhatItTook checks that units return to the window in which they
// were taken, and that a log removes their entry.
func TestAllowAllGivesBackWhatItTook(t *testing.T) {
	for _, of := range []func(int64, time.Duration) hybridlimit.Limit{hybridlimit.FixedWindow, hybridlimit.SlidingWindow, hybridlimit.SlidingLog} {
		t.Run(of(1, time.Second).Algorithm.String(), func(t *testing.T) {
			inSpread(t, func(i int, limit *hybridlimit.Limit, _ *global.Config) {
				if i == 0 {
					*limit = of(10, 10*time.Second)
				}
			}, func(t *testing.T, s spread) {
				time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(14 * time.Second))) // 4 s into a window
				first, _ := hybridlimit.WithRequestID(t.Context(), "first")
				if res, err := s.limits[0].AllowN(first, s.asks[0].Key, 3); err != nil || !res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				}
				allow(t, s.limits[2], s.asks[2].Key, 5)
				time.Sleep(5950 * time.Millisecond) // 50 ms before its end
				s.link.Latency(20*time.Millisecond, 20*time.Millisecond)
				allowedMeanwhile := make(chan hybridlimit.Result)
				go func() {
					time.Sleep(60 * time.Millisecond) // in the next window: after the units were taken, before they return
					res, _ := s.limits[0].AllowN(context.Background(), s.asks[0].Key, 4)
					allowedMeanwhile <- res
				}()
				denied, _ := hybridlimit.WithRequestID(t.Context(), "denied")
				if res, err := hybridlimit.AllowAll(denied, s.asks...); err != nil || res.Allowed || res.Policy != "l2" {
					t.Fatalf("%+v, %v", res, err)
				}
				if res := <-allowedMeanwhile; !res.Allowed {
					t.Errorf("%+v", res)
				}
				s.link.Latency(0, 0)
				want := map[hybridlimit.Algorithm]int64{
					hybridlimit.AlgFixedWindow:   6, // all of the next window but the four
					hybridlimit.AlgSlidingWindow: 3, // also without the three of the last window
					hybridlimit.AlgSlidingLog:    3,
				}[of(1, time.Second).Algorithm]
				if got := left(t, s.limits[0], s.asks[0].Key); got != want {
					t.Errorf("%d left, want %d", got, want)
				}
				if of(1, time.Second).Algorithm != hybridlimit.AlgSlidingLog {
					return
				}
				trail, err := s.limits[0].History(t.Context(), s.asks[0].Key)
				if err != nil || len(trail) != 2 || trail[0].RequestID != "first" || trail[0].Units != 3 || trail[1].Units != 4 {
					t.Errorf("%+v, %v", trail, err)
				}
			})
		})
	}
}

// TestAllowAllClosedInTheMiddle checks that a limiter that is closed during the call still
// gives units back.
func TestAllowAllClosedInTheMiddle(t *testing.T) {
	inSpread(t, nil, func(t *testing.T, s spread) {
		allow(t, s.limits[2], s.asks[2].Key, 5)
		s.link.Latency(5*time.Millisecond, 5*time.Millisecond)
		go func() {
			time.Sleep(15 * time.Millisecond)
			for _, l := range s.limits {
				l.Close()
			}
		}()
		if res, err := hybridlimit.AllowAll(t.Context(), s.asks...); err != nil || res.Allowed || res.Policy != "l2" {
			t.Errorf("%+v, %v", res, err)
		}
		s.link.Latency(0, 0)
		for i, want := range []int64{5, 5, 0} {
			again := newLimiter(t, s.link.Client(nil), still(5), global.Config{Name: fmt.Sprint("l", i)})
			if got := left(t, again, s.asks[i].Key); got != want {
				t.Errorf("limit %d has %d left, want %d", i, got, want)
			}
		}
	})
}
