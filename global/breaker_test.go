package global_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestABreakerGuardsDecisions lets Redis hang. After three lost messages, decisions fail at once, with the answer of FailOpen, for all
// verbs. When Redis answers again, decisions do so within two seconds. Without a breaker each of them waited for Timeout.
func TestABreakerGuardsDecisions(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := redistest.NewBubble(t)
			link := b.Link()
			var changes []breaker.State
			l := newLimiter(t, link.Client(nil), ten, global.Config{FailOpen: failOpen, Breaker: breaker.Config{
				Failures: 3, OnChange: func(c breaker.Change) { changes = append(changes, c.To) },
			}})
			allow(t, l, "k", 1)
			link.Script(func(int, []string) redistest.Verdict { return redistest.Delay(time.Hour) })
			for range 3 {
				if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) {
					t.Fatal(err)
				}
			}
			synctest.Wait() // their messages have ended
			began := time.Now()
			for range 100 {
				res, err := l.Allow(t.Context(), "k")
				if !errors.Is(err, hybridlimit.ErrUnavailable) || !strings.Contains(err.Error(), "the breaker is open") || res.Allowed != failOpen || res.Source != hybridlimit.SourceFallback {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			for name, verb := range map[string]func() error{
				"AllowN": func() error { _, err := l.AllowN(t.Context(), "other", 2); return err },
				"Peek":   func() error { _, err := l.Peek(t.Context(), "k"); return err },
				"Charge": func() error { _, err := l.Charge(t.Context(), "k", 1); return err },
				"AllowAll": func() error {
					_, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "k", N: 1}, hybridlimit.Ask{Limiter: l, Key: "other", N: 1})
					return err
				},
			} {
				if err := verb(); !errors.Is(err, hybridlimit.ErrUnavailable) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if took := time.Since(began); took > 0 || l.State() != breaker.Open {
				t.Errorf("decisions with an open breaker took %v, state %v", took, l.State())
			}
			link.Script(nil)
			for {
				if _, err := l.Allow(t.Context(), "k"); err == nil {
					break
				}
				if time.Sleep(50 * time.Millisecond); time.Since(began) > 2*time.Second {
					t.Fatal("Redis is back, and decisions are not")
				}
			}
			if l.State() != breaker.Closed || len(changes) < 3 || changes[0] != breaker.Open {
				t.Errorf("state %v, changes %v", l.State(), changes)
			}
		})
	}
}

// TestWhatOpensNoBreaker checks failures that say nothing about Redis, in any number: callers that leave, deadlines of callers, one
// lost message of many callers, and a refused op.
func TestWhatOpensNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		l := newLimiter(t, link.Client(nil), ten, global.Config{Breaker: breaker.Config{Failures: 3}})
		allow(t, l, "k", 1)
		link.Script(func(int, []string) redistest.Verdict { return redistest.Delay(50 * time.Millisecond) })
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := l.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(100 * time.Millisecond)
		}
		lost := false
		link.Script(func(_ int, cmd []string) redistest.Verdict {
			if !lost && strings.HasPrefix(strings.ToLower(cmd[0]), "eval") {
				lost = true
				return redistest.DropReply(redistest.ThenClose)
			}
			return redistest.Forward()
		})
		failed := make(chan error, 50)
		for range 50 {
			go func() {
				_, err := l.Allow(t.Context(), "k")
				failed <- err
			}()
		}
		for range 50 {
			<-failed
		}
		if l.State() != breaker.Closed {
			t.Errorf("the breaker is %v", l.State())
		}
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Errorf("after all of them: %v", err)
		}
	})
}

// A breaker's configuration is checked with the rest, in one error.
func TestBadBreaker(t *testing.T) {
	_, err := global.New(redistest.NewBubble(t).Client(nil), ten, global.Config{Breaker: breaker.Config{Failures: -1}})
	if err == nil || !strings.Contains(err.Error(), "Config.Name") || !strings.Contains(err.Error(), "Config.Breaker.Failures (-1)") {
		t.Error(err)
	}
}
