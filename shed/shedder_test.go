package shed_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/shed"
)

func TestConfigListsAllViolations(t *testing.T) {
	_, err := shed.New(shed.Config{
		Classes:     []string{"a", "", "a"},
		Healthy:     -1,
		MaxInFlight: -2,
		MinInFlight: -3,
		MaxWait:     -4,
		Step:        math.NaN(),
		Name:        "a b",
	})
	const want = `shed: Config.Classes[1] ("") must match [A-Za-z0-9_.-]{1,128}; ` +
		`Config.Classes[2] ("a") must be another name, because Config.Classes[0] has it too; ` +
		`Config.Healthy (-1ns) must be above 0: a time that calls of a healthy process do not take; ` +
		`Config.MaxInFlight (-2) must not be negative; Config.MinInFlight (-3) must be 0 to MaxInFlight (-2); ` +
		`Config.MaxWait (-4ns) must not be negative; Config.Step (NaN) must be 0 to 1; ` +
		`Config.Name ("a b") must match [A-Za-z0-9_.-]{1,128}`
	if err == nil || err.Error() != want || !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, classes := range [][]string{nil, {"only"}, {"1", "2", "3", "4", "5", "6", "7"}} {
		if _, err := shed.New(shed.Config{Classes: classes, Healthy: 1}); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("%v: %v", classes, err)
		}
	}
	if _, err := shed.New(shed.Config{Classes: []string{"a", "b"}, Healthy: 1, MaxInFlight: 5, MinInFlight: 6}); err == nil || !strings.Contains(err.Error(), "must be 0 to MaxInFlight (5)") {
		t.Errorf("%v", err)
	}
}

// shedder returns a Shedder, which is closed at the end of the test.
func shedder(t *testing.T, cfg shed.Config) *shed.Shedder {
	t.Helper()
	s, err := shed.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// small is a Shedder with one place.
func small(t *testing.T) *shed.Shedder {
	t.Helper()
	return shedder(t, shed.Config{Classes: classes, Healthy: time.Second, MaxInFlight: 1, Logger: slog.New(slog.DiscardHandler)})
}

// acquire fails the test unless the call is allowed.
func acquire(t *testing.T, s *shed.Shedder, class string) hybridlimit.Permit {
	t.Helper()
	p, res, err := s.Acquire(t.Context(), class)
	if err != nil || p == (hybridlimit.Permit{}) || !res.Allowed {
		t.Fatalf("%s: %+v, %v", class, res, err)
	}
	return p
}

func TestTheFirstClassNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small(t)
		began := time.Now()
		var held []hybridlimit.Permit
		for range 100 {
			held = append(held, acquire(t, s, "critical"))
		}
		if n := s.Stats().InFlight; n != 100 || time.Since(began) > 0 {
			t.Errorf("%d in flight after %v", n, time.Since(began))
		}
		for _, p := range held {
			p.Release()
			p.Release() // once too often
		}
		if n := s.Stats(); n.InFlight != 0 || n.Waiting != 0 {
			t.Errorf("%+v", n)
		}
		acquire(t, s, "test").Release() // the place is free again
	})
}

func TestAShedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small(t)
		defer acquire(t, s, "write").Release()
		for _, class := range []string{"write", "read", "test", "unknown", ""} {
			began := time.Now()
			p, res, err := s.Acquire(t.Context(), class)
			took := time.Since(began)
			if p != (hybridlimit.Permit{}) || err != nil || res.Allowed || res.Granted != 0 || took != shed.DefaultMaxWait {
				t.Errorf("%q: %+v, %v after %v", class, res, err, took)
			}
			if res.Source != hybridlimit.SourceShed || res.Policy != shed.DefaultName || res.Limit != 1 || res.Remaining != 0 {
				t.Errorf("%q: %+v", class, res)
			}
			if res.RetryAfter < time.Second || res.RetryAfter > 2*time.Second {
				t.Errorf("%q: retry after %v", class, res.RetryAfter)
			}
			p.Release() // a zero permit holds nothing
		}
		last := s.Stats().Classes[3]
		if last.Class != "test" || last.Shed != 3 || last.NoRoom != 3 {
			t.Errorf("unknown classes do not count as the last one: %+v", last)
		}
	})
}

// TestRetryAfterIsSpread sheds nearly all calls and looks at the waits that they are
// told.
func TestRetryAfterIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small(t)
		p := acquire(t, s, "write")
		for range 300 { // 80 calls a second, until nearly all are shed
			for range 4 {
				go s.Acquire(t.Context(), "read")
				go s.Acquire(t.Context(), "test")
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		if share := s.Stats().Share; share < 0.9 {
			t.Fatalf("share %v", share)
		}
		told := map[string]time.Duration{}
		distinct := map[time.Duration]bool{}
		for _, class := range []string{"read", "test"} {
			for range 50 {
				_, res, err := s.Acquire(t.Context(), class)
				if err != nil || res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				}
				told[class] += res.RetryAfter / 50
				distinct[res.RetryAfter] = true
			}
		}
		// The upper class comes back first.
		if told["read"] < time.Second || told["test"] <= told["read"] || told["test"] > 31*time.Second || len(distinct) < 90 {
			t.Errorf("%v, %d distinct waits of 100", told, len(distinct))
		}
		p.Release()
	})
}

func TestPlacesGoToTheMostImportantClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shedder(t, shed.Config{Classes: classes, Healthy: time.Second, MaxInFlight: 1, MaxWait: time.Minute})
		first := acquire(t, s, "test")
		var all sync.WaitGroup
		var mu sync.Mutex
		var order []string
		for _, name := range []string{"test 1", "read 1", "write 1", "test 2", "write 2", "read 2"} {
			all.Go(func() {
				p, _, err := s.Acquire(t.Context(), strings.Fields(name)[0])
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				p.Release()
			})
			synctest.Wait()
		}
		first.Release()
		all.Wait()
		if got := strings.Join(order, ", "); got != "write 1, write 2, read 1, read 2, test 1, test 2" {
			t.Errorf("order: %s", got)
		}
	})
}

// slowLog is a log whose lines take a second.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(context.Context, slog.Record) error {
	time.Sleep(time.Second)
	return nil
}

// TestCloseWaitsForTheGoroutine closes while the goroutine writes a line.
func TestCloseWaitsForTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := shedder(t, shed.Config{Classes: classes, Healthy: time.Second, MaxInFlight: 1, MaxWait: time.Millisecond, Logger: slog.New(slowLog{})})
		defer acquire(t, s, "write").Release()
		s.Acquire(t.Context(), "read") // is shed, and the line begins after 100 ms
		time.Sleep(500 * time.Millisecond)
		if err := s.Close(); err != nil || time.Since(began) < 1100*time.Millisecond {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
	})
}

// TestADependencyThatHangs never answers the calls that run, for ten minutes. Then
// it answers them all.
func TestADependencyThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shedder(t, shed.Config{Classes: classes, Healthy: time.Second, MaxInFlight: 10, Logger: slog.New(slog.DiscardHandler)})
		answer := make(chan struct{})
		var all sync.WaitGroup
		for range 600 {
			for _, class := range classes {
				all.Go(func() {
					p, _, err := s.Acquire(t.Context(), class)
					if err != nil {
						t.Error(err)
					}
					if p != (hybridlimit.Permit{}) {
						<-answer
						p.Release()
					}
				})
			}
			time.Sleep(time.Second)
		}
		n := s.Stats()
		if n.Classes[0].Allowed != 600 || n.Classes[0].Shed != 0 || n.InFlight > 610 || n.Waiting > 3 || n.Share < 0.9 {
			t.Errorf("%+v", n)
		}
		close(answer)
		all.Wait()
		time.Sleep(30 * time.Second)
		if share := s.Stats().Share; share != 0 {
			t.Errorf("share %v half a minute after the end", share)
		}
		acquire(t, s, "test").Release()
	})
}

// TestLogLines counts the lines of one incident: two for each class that was shed.
func TestLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := shedder(t, shed.Config{
			Classes: classes, Healthy: 50 * time.Millisecond, MaxInFlight: places, Name: "worker",
			Logger: slog.New(slog.NewTextHandler(&text, nil)),
		})
		incident{rates, 100, slow, after, 1}.run(shedding(s), nil)
		s.Close() // no line is written later
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 6 || strings.Contains(text.String(), "class=critical") {
			t.Errorf("%d lines:\n%s", len(lines), text.String())
		}
		for _, class := range classes[1:] {
			for _, event := range []string{"level=WARN msg=\"shed: the process is overloaded; calls of a class are shed\" policy=worker class=", "level=INFO msg=\"shed: calls of a class are served again\" policy=worker class="} {
				if strings.Count(text.String(), event+class+" ") != 1 {
					t.Errorf("%s%s is not there once:\n%s", event, class, text.String())
				}
			}
		}
	})
}
