package hybrid_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// site is a fleet of two processes and an exact limiter, all on one Redis.
type site struct {
	*redistest.Bubble
	links []*redistest.MemLink
}

func (s *site) all(f func(*redistest.MemLink)) {
	for _, l := range s.links {
		f(l)
	}
}

// scripted returns a fault that gives every script the same verdict. The
// handshake of a connection passes.
func scripted(v redistest.Verdict) (on, off func(*site)) {
	on = func(s *site) {
		s.all(func(l *redistest.MemLink) {
			l.Script(func(_ int, cmd []string) redistest.Verdict {
				if strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
					return v
				}
				return redistest.Forward()
			})
		})
	}
	off = func(s *site) { s.all(func(l *redistest.MemLink) { l.Script(nil) }) }
	return on, off
}

// says returns a fault with which Redis answers every command with one error.
func says(text string) (on, off func(*site)) {
	return func(s *site) { s.Mini.SetError(text) }, func(s *site) { s.Mini.SetError("") }
}

// trouble is a row of the table: a fault of Redis or of the network that lasts
// five seconds.
type trouble struct {
	name    string
	on, off func(*site)
	again   bool // on is repeated every 330 ms
	// opens reports whether the breaker opens. It stays closed if Redis works,
	// or only asks the client for something, for example to go to another node.
	opens bool
	// serves reports whether the shared limit goes on deciding. One decision in
	// twenty may be on a connection that was cut.
	serves bool
	wipes  bool   // Redis loses its memory
	text   string // part of the error of global, if there is one
}

func row(name string, opens bool, text string, onOff func() (on, off func(*site))) trouble {
	on, off := onOff()
	return trouble{name: name, on: on, off: off, opens: opens, text: text}
}

func errorRow(opens bool, text string) trouble {
	code, _, _ := strings.Cut(text, " ")
	return row(code, opens, text, func() (on, off func(*site)) { return says(text) })
}

func verdictRow(name, text string, v redistest.Verdict) trouble {
	return row(name, true, text, func() (on, off func(*site)) { return scripted(v) })
}

// troubles lists the faults and their effects. Other tests cause them with real
// servers and clusters: TestClassifyRealRedis of internal/circuit, TestCluster
// and TestSlotMoves of global, and TestOutageUnderLoad.
var troubles = []trouble{
	errorRow(true, "LOADING Redis is loading the dataset in memory"),
	errorRow(true, "READONLY You can't write against a read only replica."),
	errorRow(true, "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
	errorRow(true, "CLUSTERDOWN The cluster is down"),
	errorRow(true, "OOM command not allowed when used memory > 'maxmemory'."),
	errorRow(true, "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
	errorRow(true, "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
	errorRow(true, "NOREPLICAS Not enough good replicas to write."),
	errorRow(true, "NOAUTH Authentication required."),
	errorRow(true, "WRONGPASS invalid username-password pair or user is disabled."),
	errorRow(true, "NOPERM this user has no permissions to run the 'evalsha' command"),
	errorRow(true, "CROSSSLOT Keys in request don't hash to the same slot"),
	row("max clients", true, "max number of clients", func() (on, off func(*site)) { return says("ERR max number of clients reached") }),
	errorRow(false, "MOVED 3999 127.0.0.1:6381"),
	errorRow(false, "ASK 3999 127.0.0.1:6381"),
	errorRow(false, "TRYAGAIN Multiple keys request during rehashing of slot"),
	{name: "NOSCRIPT", again: true, serves: true, off: func(*site) {}, on: func(s *site) {
		s.Client(nil).ScriptFlush(context.Background())
	}},
	{name: "CLIENT KILL", again: true, serves: true, off: func(*site) {}, on: func(s *site) {
		s.all(func(l *redistest.MemLink) { l.CutAll() })
	}},
	verdictRow("reset", "", redistest.DropRequest(redistest.ThenClose)),
	verdictRow("request lost", "deadline", redistest.DropRequest(redistest.ThenHang)),
	verdictRow("reply lost after execution, reset", "", redistest.DropReply(redistest.ThenClose)),
	verdictRow("reply lost after execution, half-open TCP", "deadline", redistest.DropReply(redistest.ThenHang)),
	verdictRow("slow: beyond SlowCall, within time-outs", "", redistest.Delay(150*time.Millisecond)),
	row("hangs, and answers all later (SIGSTOP)", true, "deadline", func() (on, off func(*site)) {
		return func(s *site) { s.all(func(l *redistest.MemLink) { l.Pause() }) }, func(s *site) { s.all(func(l *redistest.MemLink) { l.Resume() }) }
	}),
	row("refused", true, "refused", func() (on, off func(*site)) {
		return func(s *site) { s.all(func(l *redistest.MemLink) { l.Refuse(true); l.CutAll() }) },
			func(s *site) { s.all(func(l *redistest.MemLink) { l.Refuse(false) }) }
	}),
	{name: "SIGKILL, empty restart", opens: true, wipes: true, on: func(s *site) { s.Kill() }, off: func(s *site) { s.Restart() }},
	{name: "FLUSHALL", serves: true, wipes: true, on: func(s *site) { s.Mini.FlushAll() }, off: func(*site) {}},
}

func TestEveryFault(t *testing.T) {
	t.Parallel()
	for _, f := range troubles {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f.befall(t) })
		})
	}
}

// tries calls up to three times, and reports whether a call was answered. Each
// call is sent once, so the first call on a dead connection fails. On a socket
// go-redis would notice the dead connection earlier.
func tries(t *testing.T, l *global.Limiter) (worked bool, errs error) {
	t.Helper()
	for range 3 {
		_, err := l.Allow(t.Context(), "k")
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("global: %v", err)
		}
		errs = errors.Join(errs, err)
	}
	return false, errs
}

func (f trouble) befall(t *testing.T) {
	// After failed dials go-redis takes a second to notice that a client is
	// closed.
	t.Cleanup(func() { time.Sleep(2 * time.Second) })
	const maxWait, lasts = 20 * time.Millisecond, 5 * time.Second
	s := &site{Bubble: redistest.NewBubble(t)}
	rdb := s.Client(nil)
	log := newCapture()
	var ls []*hybrid.Limiter
	for range 2 {
		link := s.Link()
		s.links = append(s.links, link)
		ls = append(ls, newLimiter(t, link.Client(nil), still(10_000), hybrid.Config{MaxWait: maxWait, Hub: hybrid.HubConfig{Logger: slog.New(log)}}))
		time.Sleep(17 * time.Millisecond)
	}
	link := s.Link()
	s.links = append(s.links, link)
	exact, err := global.New(link.Client(nil), still(10_000), global.Config{Name: "exact", Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer exact.Close()

	// during calls each limiter 200 times a second, and returns the number of
	// decisions by source.
	during := func(d time.Duration) (by map[hybridlimit.Source]int) {
		by = map[hybridlimit.Source]int{}
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			for _, l := range ls {
				began := time.Now()
				res := ask(t, l, "k", 1)
				if took := time.Since(began); took > maxWait || !res.Allowed {
					t.Errorf("after %v: %+v", took, res)
				}
				by[res.Source]++
			}
		}
		return by
	}
	time.Sleep(3 * time.Second)
	by := during(2 * time.Second)
	if _, err := exact.Allow(t.Context(), "k"); err != nil || by[hybridlimit.SourceFallback] > 0 {
		t.Fatalf("before the fault: decisions by source %v, error %v", by, err)
	}

	f.on(s)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for f.again {
			select {
			case <-stop:
				return
			case <-time.After(330 * time.Millisecond):
				f.on(s)
			}
		}
	}()
	first := during(lasts / 2) // the breaker opens in this time
	if worked, errs := tries(t, exact); worked != f.serves {
		t.Errorf("global: %v", errs)
	} else if !f.serves && !strings.Contains(errs.Error(), f.text) {
		t.Errorf("the error of global does not contain %q: %v", f.text, errs)
	}
	later := during(lasts / 2)
	if open := ls[0].Stats().Breaker != breaker.Closed; open != f.opens {
		t.Errorf("the breaker is %v during the fault", ls[0].Stats().Breaker)
	}
	alone, shared := later[hybridlimit.SourceFallback], later[hybridlimit.SourceCredit]+later[hybridlimit.SourceRedis]
	if f.serves && alone > (shared+later[hybridlimit.SourceLease])/20 || !f.serves && (alone == 0 || shared > 0) {
		t.Errorf("decisions by source: %v in the first half of the fault, %v in the second", first, later)
	}
	close(stop)
	<-done
	f.off(s)

	during(2 * time.Second) // the fleet recovers in this time
	if by := during(time.Second); by[hybridlimit.SourceFallback] > 0 || ls[0].Stats().Breaker != breaker.Closed || ls[1].Stats().Breaker != breaker.Closed {
		t.Errorf("two seconds after the fault: decisions by source %v, breakers %v and %v", by, ls[0].Stats().Breaker, ls[1].Stats().Breaker)
	}
	if worked, errs := tries(t, exact); !worked {
		t.Errorf("global, after the fault: %v", errs)
	}
	shutdown(t, ls...)
	known := balance(t, ls[0].Stats()) + balance(t, ls[1].Stats())
	if got := debited(t, rdb, "api", "k"); !f.wipes && !explained(t, got, ls[0].Stats(), ls[1].Stats()) {
		t.Errorf("Redis debited %d, the fleet knows of %d", got, known)
	}
	if state := inRedis(t, rdb, "api", "k"); f.wipes {
		// The bucket lacks the units that the fleet admitted, whichever process reported them.
		if missing := 10_000 - state.Level/state.Unit; missing < known*9/10 {
			t.Errorf("%d units are missing from the bucket, want at least nine tenths of %d", missing, known)
		}
	}
	var broken, mended int
	for _, line := range log.all() {
		switch {
		case strings.HasPrefix(line, lineBroken):
			broken++
		case strings.HasPrefix(line, lineMended):
			mended++
		case f.wipes && strings.HasPrefix(line, lineLost):
		default:
			t.Errorf("logged %q", line)
		}
	}
	if want := map[bool]int{true: len(ls)}[f.opens]; broken != want || mended != want {
		t.Errorf("logged %d failures and %d recoveries, want %d each: %q", broken, mended, want, log.all())
	}
}
