package global_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// hourly refills no unit during a test.
var hourly = hybridlimit.PerHour(100)

// remaining takes one unit of key and returns the number of units before.
func remaining(t *testing.T, l *global.Limiter, key string) int64 {
	t.Helper()
	return allow(t, l, key, 1).Remaining + 1
}

// TestLostReplyIsNotSentAgain checks that a call is sent once if its reply is lost. By
// default go-redis would repeat it, and three units would cost twelve.
func TestLostReplyIsNotSentAgain(t *testing.T) {
	short := func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond }
	for _, tc := range []struct {
		name    string
		verdict redistest.Verdict
		spent   int64
		cause   func(error) bool
		took    time.Duration
	}{
		{"reply lost", redistest.DropReply(redistest.ThenClose), 3, isEOF, 0},
		{"request lost", redistest.DropRequest(redistest.ThenClose), 0, isEOF, 0},
		{"hangs after", redistest.DropReply(redistest.ThenHang), 3, isTimeout, 100 * time.Millisecond},
		{"hangs before", redistest.DropRequest(redistest.ThenHang), 0, isTimeout, 100 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, hourly, global.Config{Timeout: time.Minute}, short, func(t *testing.T, s *scene) {
				lostReply(t, s.Limiter, s.link.Link, tc.verdict, tc.spent, func(err error) bool {
					s.took(tc.took)
					return tc.cause(err)
				}, func() { s.began = time.Now() })
			})
		})
		if tc.took > 0 {
			continue
		}
		t.Run(tc.name+"/redis", func(t *testing.T) {
			proxy := redistest.NewProxy(t, redistest.New(t).Addr())
			rdb := proxy.Client(t)
			if o := rdb.Options(); o.MaxRetries != 3 {
				t.Fatalf("the client retries %d times: not go-redis' default", o.MaxRetries)
			}
			lostReply(t, newLimiter(t, rdb, hourly, patientConfig), proxy.Link, tc.verdict, tc.spent, tc.cause, func() {})
		})
	}
}

// lostReply loses one call for three units.
func lostReply(t *testing.T, l *global.Limiter, link *redistest.Link, verdict redistest.Verdict, spent int64, cause func(error) bool, begin func()) {
	t.Helper()
	allow(t, l, "k", 1)
	before, sources := link.Count("EVALSHA").Seen, link.Count("EVAL").Seen
	link.Script(redistest.OnEvery("EVALSHA", verdict))
	begin()
	res, err := l.AllowN(t.Context(), "k", 3)
	isCause := cause(err)
	link.Script(nil)

	wantErr(t, err, hybridlimit.ErrUnavailable)
	if !isCause || res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	if n := link.Count("EVALSHA").Seen - before; n != 1 {
		t.Errorf("sent %d times", n)
	}
	if got := remaining(t, l, "k"); got != 99-spent {
		t.Errorf("%d units remain, want %d", got, 99-spent)
	}
	if n := link.Count("EVAL").Seen - sources; n != 0 {
		t.Errorf("EVAL was sent %d times", n)
	}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// TestUnknownScript checks that a missing script is sent within one decision of two
// commands.
func TestUnknownScript(t *testing.T) {
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	direct := server.Client(t)
	l := newLimiter(t, proxy.Client(t), hourly, patientConfig)
	for i := range int64(3) {
		before := proxy.Counts()
		if res := allow(t, l, "k", 1); res.Remaining != 100-2*i-1 {
			t.Errorf("%+v", res)
		}
		if res := allow(t, l, "k", 1); res.Remaining != 100-2*i-2 {
			t.Errorf("%+v", res)
		}
		after := proxy.Counts()
		if e, s := after["EVAL"].Seen-before["EVAL"].Seen, after["EVALSHA"].Seen-before["EVALSHA"].Seen; e != 1 || s != 2 {
			t.Errorf("%d EVAL and %d EVALSHA", e, s)
		}
		if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostReplyToTheSource checks that an EVAL is not sent again if its reply is lost.
func TestLostReplyToTheSource(t *testing.T) {
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Script(redistest.OnEvery("EVAL", redistest.DropReply(redistest.ThenClose)))
	l := newLimiter(t, proxy.Client(t), hourly, patientConfig)
	_, err := l.AllowN(t.Context(), "k", 3)
	wantErr(t, err, hybridlimit.ErrUnavailable, io.EOF)
	if e, s := proxy.Count("EVAL").Seen, proxy.Count("EVALSHA").Seen; e != 1 || s != 1 {
		t.Errorf("%d EVAL and %d EVALSHA", e, s)
	}
	if got := remaining(t, l, "k"); got != 97 {
		t.Errorf("%d units remain", got)
	}
}

// TestRestart checks that the first call after a restart of Redis gets a decision. The
// restart loses the script, the state and the connections.
func TestRestart(t *testing.T) {
	server := redistest.New(t)
	l := newLimiter(t, server.Client(t), hourly, patientConfig)
	allow(t, l, "k", 40)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if res := allow(t, l, "k", 1); res.Remaining != 99 {
		t.Errorf("after a restart, empty: %+v", res)
	}
}

// TestErrorReplies checks that an error reply of Redis is the cause of the error, and that
// the call is sent once.
func TestErrorReplies(t *testing.T) {
	for _, reply := range []string{
		"LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.", "BUSY Redis is busy running a script.",
		"NOAUTH Authentication required.", "ERR max number of clients reached", "MASTERDOWN Link with MASTER is down",
		"CLUSTERDOWN The cluster is down", "HLBATCH schema 2",
	} {
		inBubble(t, hourly, global.Config{}, defaults, func(t *testing.T, s *scene) {
			allow(t, s.Limiter, "k", 1)
			before := s.link.Count("EVALSHA").Seen
			s.bubble.Mini.SetError(reply)
			_, err := s.Allow(t.Context(), "k")
			s.bubble.Mini.SetError("")
			s.took(0) // no retry, and so no pause before one
			wantErr(t, err, hybridlimit.ErrUnavailable)
			var said redis.Error
			if !errors.As(err, &said) || said.Error() != reply {
				t.Errorf("%v, want %s", err, reply)
			}
			if n := s.link.Count("EVALSHA").Seen - before; n != 1 {
				t.Errorf("%s: sent %d times", reply, n)
			}
			if got := remaining(t, s.Limiter, "k"); got != 99 {
				t.Errorf("%s: %d units remain", reply, got)
			}
		})
	}
}

// TestRefusedConnection checks the Result if Redis refuses connections, and that the call
// ends within Timeout.
func TestRefusedConnection(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint("FailOpen ", open), func(t *testing.T) {
			cfg := global.Config{FailOpen: open, Name: "x"}
			inBubble(t, hourly, cfg, defaults, func(t *testing.T, s *scene) {
				s.link.Refuse(true)
				l := newLimiter(t, s.link.Client(nil), hourly, cfg)
				res, err := l.AllowN(t.Context(), "k", 7)
				wantErr(t, err, hybridlimit.ErrUnavailable)
				want := hybridlimit.Result{Limit: 100, Policy: "x", Source: hybridlimit.SourceFallback, Allowed: open}
				if open {
					want.Granted = 7
				} else {
					want.RetryAfter = 250 * time.Millisecond
				}
				if res != want {
					t.Errorf("%+v, want %+v", res, want)
				}
				if d := time.Since(s.began); d > 250*time.Millisecond {
					t.Errorf("took %v", d)
				}
				time.Sleep(time.Minute) // go-redis continues to dial in a goroutine
			})
		})
	}
}
