package global_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// oneTag is for tests whose calls all share messages.
var oneTag = global.Config{Tags: 1}

// roundTrip is the time of a message in tests with a latency.
const roundTrip = 20 * time.Millisecond

// ended is the result of a call, and the virtual time that it took.
type ended struct {
	hybridlimit.Result
	err  error
	took time.Duration
}

// atOnce runs calls concurrently. Each begins when all earlier ones wait.
func atOnce(calls ...func() (hybridlimit.Result, error)) []ended {
	out := make([]ended, len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() {
			began := time.Now()
			res, err := call()
			out[i] = ended{res, err, time.Since(began)}
		})
		synctest.Wait()
	}
	wg.Wait()
	return out
}

// ask returns a call for n units of key.
func (s *scene) ask(ctx context.Context, key string, n int64) func() (hybridlimit.Result, error) {
	return func() (hybridlimit.Result, error) { return s.AllowN(ctx, key, n) }
}

// warm loads the script and then sets the latency of the link.
func (s *scene) warm() {
	s.t.Helper()
	allow(s.t, s.Limiter, "warm", 1)
	s.link.Latency(roundTrip/2, roundTrip/2)
	s.began = time.Now()
}

// TestConcurrentCallsShareAMessage checks the number of messages of concurrent calls, and
// that each gets the answer that it would have got alone.
func TestConcurrentCallsShareAMessage(t *testing.T) {
	for name, limit := range map[string]hybridlimit.Limit{
		"bucket": hourly, "fixed": hybridlimit.FixedWindow(100, 24*time.Hour), "sliding": hybridlimit.SlidingWindow(100, 24*time.Hour),
		"queue": hybridlimit.LeakyQueue(1, time.Hour, 100),
	} {
		for _, keys := range []int{1, 3} {
			t.Run(fmt.Sprint(name, " ", keys), func(t *testing.T) {
				inBubble(t, limit, oneTag, defaults, func(t *testing.T, s *scene) {
					s.warm()
					before := s.link.Count("EVALSHA").Forwarded
					var calls []func() (hybridlimit.Result, error)
					for i := range 130 * keys {
						calls = append(calls, s.ask(t.Context(), fmt.Sprint("k", i%keys), 1))
					}
					got := atOnce(calls...)
					want := 1 + (130*keys-1+63)/64 // the first call alone, the others together
					if n := s.link.Count("EVALSHA").Forwarded - before; n != want {
						t.Errorf("%d messages, want %d", n, want)
					}
					for key := range keys {
						var left []int64
						for i := key; i < len(got); i += keys {
							r := got[i]
							if r.err != nil || r.took > time.Duration(want)*roundTrip {
								t.Fatalf("%+v", r)
							}
							if r.Allowed {
								left = append(left, r.Remaining)
							} else if r.RetryAfter <= 0 || r.RetryAfter > 48*time.Hour || r.Remaining != 0 {
								t.Errorf("denied: %+v", r)
							}
						}
						slices.Sort(left)
						for i, n := range left {
							if n != int64(i) {
								t.Fatalf("the remaining units are %v", left)
							}
						}
						if len(left) != 100 {
							t.Errorf("%d admitted", len(left))
						}
					}
				})
			})
		}
	}
}

// TestCallsOfSeveralKindsShareAMessage checks calls that take other units than one, or
// that do something else.
func TestCallsOfSeveralKindsShareAMessage(t *testing.T) {
	inBubble(t, hourly, oneTag, defaults, func(t *testing.T, s *scene) {
		s.warm()
		ctx := t.Context()
		before := s.link.Count("EVALSHA").Forwarded
		got := atOnce(
			s.ask(ctx, "a", 10),
			s.ask(ctx, "a", 20), s.ask(ctx, "b", 1), s.ask(ctx, "a", 1), s.ask(ctx, "a", 1),
			func() (hybridlimit.Result, error) { return s.AllowAtMost(ctx, "a", 1000) },
			func() (hybridlimit.Result, error) { return s.Charge(ctx, "b", 150) },
			func() (hybridlimit.Result, error) { return s.Refund(ctx, "a", 3) },
			func() (hybridlimit.Result, error) { return s.Peek(ctx, "a") },
			func() (hybridlimit.Result, error) { return hybridlimit.Result{}, s.Reset(ctx, "b") },
			func() (hybridlimit.Result, error) { return s.AllowLimit(ctx, "c", 30, hybridlimit.PerHour(40)) },
		)
		for i, want := range []struct{ granted, remaining int64 }{
			{10, 90}, {20, 70}, {1, 99}, {1, 69}, {1, 68}, {68, 0}, {150, 0}, {0, 3}, {0, 3}, {0, 0}, {30, 10},
		} {
			r := got[i]
			if r.err != nil || r.Granted != want.granted || r.Remaining != want.remaining {
				t.Errorf("call %d: %+v, want %+v", i, r, want)
			}
		}
		if n := s.link.Count("EVALSHA").Forwarded - before; n != 2 {
			t.Errorf("%d messages", n)
		}
		if res := allow(t, s.Limiter, "b", 1); res.Remaining != 99 {
			t.Errorf("after the Reset: %+v", res)
		}
	})
}

// TestNobodyWaitsForLong checks that a call waits for the message in flight and for those
// before its own, and no longer: messages go out in order.
func TestNobodyWaitsForLong(t *testing.T) {
	inBubble(t, hourly, oneTag, defaults, func(t *testing.T, s *scene) {
		s.warm()
		var calls []func() (hybridlimit.Result, error)
		for i := range 200 { // 1 + 64 + 64 + 64 + 7
			calls = append(calls, s.ask(t.Context(), fmt.Sprint("k", i), 1))
		}
		for i, r := range atOnce(calls...) {
			if want := time.Duration(1+(i+63)/64) * roundTrip; r.err != nil || !r.Allowed || r.took != want {
				t.Errorf("call %d: %+v, want %v", i, r, want)
			}
		}
		// Callers who ask again and again do not delay the others.
		stop := make(chan struct{})
		var busy sync.WaitGroup
		for range 50 {
			busy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = s.Allow(t.Context(), "hot")
					}
				}
			})
		}
		time.Sleep(roundTrip / 2)
		for range 20 {
			s.began = time.Now()
			allow(t, s.Limiter, "cold", 1)
			if d := time.Since(s.began); d > 2*roundTrip {
				t.Errorf("took %v", d)
			}
		}
		close(stop)
		busy.Wait()
	})
}

// TestDeadlineOfAWaitingCall checks that a call that waits for another call's message
// ends exactly at its own deadline, and that the others are not affected.
func TestDeadlineOfAWaitingCall(t *testing.T) {
	for name, opts := range clients {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hourly, oneTag, opts, func(t *testing.T, s *scene) {
				s.warm()
				short, cancel := context.WithTimeout(t.Context(), roundTrip/4)
				defer cancel()
				sent, cancelSent := context.WithTimeout(t.Context(), roundTrip+roundTrip/4)
				defer cancelSent()
				why, stop := context.WithCancel(t.Context())
				time.AfterFunc(roundTrip/3, stop)
				got := atOnce(s.ask(t.Context(), "k", 1), s.ask(short, "k", 1), s.ask(why, "k", 1), s.ask(sent, "k", 1), s.ask(t.Context(), "k", 1))
				for i, want := range []struct {
					took time.Duration
					err  error
				}{
					{roundTrip, nil},
					{roundTrip / 4, context.DeadlineExceeded},
					{roundTrip / 3, context.Canceled},
					{roundTrip + roundTrip/4, context.DeadlineExceeded},
					{2 * roundTrip, nil},
				} {
					if r := got[i]; r.took != want.took || !errors.Is(r.err, want.err) || errors.Is(r.err, hybridlimit.ErrUnavailable) || r.Allowed != (want.err == nil) {
						t.Errorf("call %d: %+v, want %+v", i, r, want)
					}
				}
				// The calls that ended before the message was sent took nothing.
				if res, err := s.Peek(t.Context(), "k"); err != nil || res.Remaining != 97 {
					t.Errorf("%+v, %v", res, err)
				}
			})
		})
	}
}

// TestTimeoutOfAWaitingCall checks that every call ends after Config.Timeout, whether its
// message was sent or not, with a context that can end and with one that cannot.
func TestTimeoutOfAWaitingCall(t *testing.T) {
	for name, opts := range clients {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hourly, oneTag, opts, func(t *testing.T, s *scene) {
				allow(t, s.Limiter, "k", 1)
				s.link.Pause()
				forever := context.Background()
				for _, first := range []context.Context{t.Context(), forever} {
					got := atOnce(s.ask(first, "k", 1), s.ask(t.Context(), "k", 1), s.ask(forever, "other", 1))
					for i, r := range got {
						if r.took != 250*time.Millisecond || !errors.Is(r.err, hybridlimit.ErrUnavailable) || !errors.Is(r.err, context.DeadlineExceeded) || r.Allowed {
							t.Errorf("call %d: %+v", i, r)
						}
					}
				}
				s.link.Resume()
			})
		})
	}
}

// TestTimeoutWithoutAContext checks Config.Timeout for calls with a context that cannot
// end, which are sent by the caller itself, also if the connection is not there yet.
func TestTimeoutWithoutAContext(t *testing.T) {
	for name, opts := range clients {
		for _, when := range []string{"connected", "connecting"} {
			t.Run(name+"/"+when, func(t *testing.T) {
				inBubble(t, hourly, global.Config{}, opts, func(t *testing.T, s *scene) {
					if when == "connecting" {
						s.Limiter = newLimiter(t, s.link.Client(opts), hourly, global.Config{})
					}
					s.link.Pause()
					for range 3 {
						res, err := s.Allow(context.Background(), "k")
						s.took(250 * time.Millisecond)
						wantErr(t, err, hybridlimit.ErrUnavailable, context.DeadlineExceeded)
						if res.Allowed {
							t.Errorf("%+v", res)
						}
					}
					s.link.Resume()
				})
			})
		}
	}
}

// TestADeadConnectionDelaysTheOthersOnly checks that calls behind a message whose
// connection is dead go out after a fifth of the time-out, and that the calls after them
// do not wait.
func TestADeadConnectionDelaysTheOthersOnly(t *testing.T) {
	inBubble(t, hourly, oneTag, defaults, func(t *testing.T, s *scene) {
		s.warm()
		s.link.Script(redistest.OnNth("EVALSHA", 0, redistest.DropRequest(redistest.ThenHang)))
		got := atOnce(s.ask(t.Context(), "k", 1), s.ask(t.Context(), "k", 1), s.ask(t.Context(), "l", 1), func() (hybridlimit.Result, error) {
			time.Sleep(100 * time.Millisecond)
			return s.Allow(t.Context(), "k")
		})
		if r := got[0]; r.took != 250*time.Millisecond || !errors.Is(r.err, hybridlimit.ErrUnavailable) {
			t.Errorf("%+v", r)
		}
		for _, r := range got[1:3] {
			// A new connection costs two round trips more.
			if r.err != nil || !r.Allowed || r.took < 50*time.Millisecond+roundTrip || r.took > 50*time.Millisecond+4*roundTrip {
				t.Errorf("%+v", r)
			}
		}
		if r := got[3]; r.err != nil || r.took > 100*time.Millisecond+4*roundTrip {
			t.Errorf("%+v", r)
		}
	})
}

// TestAMessageWithoutCallersIsOver checks that a message whose callers have all left
// delays no other call.
func TestAMessageWithoutCallersIsOver(t *testing.T) {
	inBubble(t, hourly, oneTag, patient, func(t *testing.T, s *scene) {
		s.warm()
		s.link.Script(redistest.OnNth("EVALSHA", 0, redistest.DropRequest(redistest.ThenHang)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		got := atOnce(s.ask(ctx, "k", 1), s.ask(t.Context(), "l", 1))
		if r := got[0]; r.took != 10*time.Millisecond || !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("%+v", r)
		}
		if r := got[1]; r.err != nil || !r.Allowed || r.took > 10*time.Millisecond+4*roundTrip {
			t.Errorf("%+v", r)
		}
	})
}

// TestALostReplyOfASharedMessage checks the meaning of a lost reply for each call of a
// shared message: the error is ErrUnavailable, and its units were debited once. If the
// request was lost, no units were debited.
func TestALostReplyOfASharedMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict redistest.Verdict
		spent   int64
	}{
		"reply":         {redistest.DropReply(redistest.ThenClose), 1},
		"reply, hangs":  {redistest.DropReply(redistest.ThenHang), 1},
		"request":       {redistest.DropRequest(redistest.ThenClose), 0},
		"request hangs": {redistest.DropRequest(redistest.ThenHang), 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hourly, oneTag, defaults, func(t *testing.T, s *scene) {
				s.warm()
				s.link.Script(redistest.OnNth("EVALSHA", 1, tc.verdict))
				before := s.link.Count("EVALSHA").Seen
				got := atOnce(s.ask(t.Context(), "k", 1), s.ask(t.Context(), "k", 1), s.ask(t.Context(), "k", 1), s.ask(t.Context(), "k", 7), s.ask(t.Context(), "l", 5))
				if got[0].err != nil {
					t.Errorf("%+v", got[0])
				}
				for _, r := range got[1:] {
					if !errors.Is(r.err, hybridlimit.ErrUnavailable) || r.Allowed || r.Granted != 0 {
						t.Errorf("%+v", r)
					}
				}
				if n := s.link.Count("EVALSHA").Seen - before; n != 2 {
					t.Errorf("%d messages", n)
				}
				s.link.Script(nil)
				for key, want := range map[string]int64{"k": 99 - tc.spent*9, "l": 100 - tc.spent*5} {
					if res, err := s.Peek(t.Context(), key); err != nil || res.Remaining != want {
						t.Errorf("%s: %+v, %v, want %d", key, res, err, want)
					}
				}
			})
		})
	}
}

// TestLogsShareNoMessage checks that each call of a log has a message of its own, with
// its own request id.
func TestLogsShareNoMessage(t *testing.T) {
	inBubble(t, hybridlimit.SlidingLog(10, time.Hour), oneTag, defaults, func(t *testing.T, s *scene) {
		s.warm()
		before := s.link.Count("EVALSHA").Forwarded
		var calls []func() (hybridlimit.Result, error)
		for i := range 5 {
			ctx, err := hybridlimit.WithRequestID(t.Context(), fmt.Sprint("id", i))
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, s.ask(ctx, "k", 1))
		}
		for _, r := range atOnce(calls...) {
			if r.err != nil || !r.Allowed {
				t.Errorf("%+v", r)
			}
		}
		if n := s.link.Count("EVALSHA").Forwarded - before; n != 5 {
			t.Errorf("%d messages", n)
		}
		log, err := s.History(t.Context(), "k")
		var ids []string
		for _, a := range log {
			ids = append(ids, a.RequestID)
		}
		slices.Sort(ids)
		if err != nil || strings.Join(ids, " ") != "id0 id1 id2 id3 id4" {
			t.Errorf("%v, %v", ids, err)
		}
	})
}

// TestASharedMessageIsTracedByItsFirstCall checks that the hooks of the client see the
// context values of the first call of a message.
func TestASharedMessageIsTracedByItsFirstCall(t *testing.T) {
	inBubble(t, hourly, oneTag, defaults, func(t *testing.T, s *scene) {
		client := s.link.Client(nil)
		h := &hook{}
		client.AddHook(h)
		s.Limiter = newLimiter(t, client, hourly, oneTag)
		s.warm()
		h.names = nil
		traced := func(name string) context.Context { return context.WithValue(t.Context(), hookKey{}, name) }
		atOnce(s.ask(traced("alone"), "k", 1), s.ask(traced("first"), "k", 1), s.ask(traced("second"), "k", 1))
		if !slices.Equal(h.names, []string{"evalsha", "evalsha"}) || h.value != "first" {
			t.Errorf("the hook saw %v, and at last the context of %v", h.names, h.value)
		}
	})
}

// TestAPanicFailsAllCallsOfAMessage checks that a panic of go-redis is the error of each
// call of the message, and that later calls work.
func TestAPanicFailsAllCallsOfAMessage(t *testing.T) {
	inBubble(t, hourly, oneTag, defaults, func(t *testing.T, s *scene) {
		client := s.link.Client(nil)
		h := &bomb{}
		client.AddHook(h)
		s.Limiter = newLimiter(t, client, hourly, oneTag)
		s.warm()
		h.at = 2
		for i, r := range atOnce(s.ask(t.Context(), "k", 1), s.ask(t.Context(), "k", 1), s.ask(context.Background(), "l", 1)) {
			if failed := errors.Is(r.err, hybridlimit.ErrUnavailable) && strings.Contains(r.err.Error(), "panicked"); failed != (i > 0) {
				t.Errorf("call %d: %+v", i, r)
			}
		}
		h.at = 1
		if _, err := s.Allow(context.Background(), "k"); err == nil || !strings.Contains(err.Error(), "panicked") {
			t.Errorf("%v", err)
		}
		allow(t, s.Limiter, "k", 1)
	})
}

// bomb is a hook that panics at a command from now on; 0: never.
type bomb struct {
	redis.Hook
	at int
}

func (*bomb) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *bomb) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.at--; h.at == 0 {
			panic("bomb")
		}
		return next(ctx, cmd)
	}
}

func (*bomb) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// allocations is the largest number of allocations of a decision. The client alone
// takes five.
const allocations = 12

// TestAllocationsOfADecision counts the allocations of a decision with a real Redis, with
// a context that can end and with one that cannot.
func TestAllocationsOfADecision(t *testing.T) {
	server := redistest.New(t)
	l := newLimiter(t, server.Client(t), ten, patientConfig)
	for _, ctx := range []context.Context{context.Background(), t.Context()} {
		if n := testing.AllocsPerRun(500, func() {
			if _, err := l.Allow(ctx, "customer-00000042"); err != nil {
				t.Fatal(err)
			}
		}); n > allocations {
			t.Errorf("%v allocations", n)
		}
	}
}
