package hybrid_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// denied asks for units until n calls are denied by the limit, each after a pause. It returns whether a penalty came
// before.
func denied(t *testing.T, l *hybrid.Limiter, key string, n int, pause time.Duration) bool {
	t.Helper()
	for range n {
		res := ask(t, l, key, 1)
		if res.Source == hybridlimit.SourcePause {
			return true
		}
		if res.Allowed {
			t.Fatalf("admitted: %+v", res)
		}
		time.Sleep(pause)
	}
	return false
}

// TestPenalty denies a key 20 times in one of three processes. All deny it for five seconds, and not longer, although
// the limit has units again. A key that is denied less often has no penalty.
func TestPenalty(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		var ls []*hybrid.Limiter
		for range 3 {
			ls = append(ls, newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(10, 1500*time.Millisecond, 10), hybrid.Config{
				Mode: mode, Penalty: hybrid.Penalty{After: 20, Within: time.Second, For: 5 * time.Second},
			}))
		}
		time.Sleep(4 * time.Second)
		empty := func(key string) {
			for range 60 {
				if res := ask(t, ls[0], key, 1); !res.Allowed {
					return
				}
			}
			t.Fatal("the key is not used up")
		}
		for range 3 { // 10 denials in each of three seconds
			empty("few")
			if denied(t, ls[0], "few", 9, time.Millisecond) {
				t.Errorf("a penalty after 10 denials")
			}
			time.Sleep(1100 * time.Millisecond)
		}
		empty("k")
		began := time.Now()
		for n := 1; !denied(t, ls[0], "k", 1, 5*time.Millisecond); n++ {
			if n == 17 && time.Since(began) < time.Second {
				continue
			}
			if n > 60 || time.Since(began) > time.Second {
				t.Fatalf("no penalty after %d denials in %v", n, time.Since(began))
			}
		}
		began = time.Now()
		time.Sleep(1100 * time.Millisecond)
		for i, l := range ls {
			if res := ask(t, l, "k", 1); res.Allowed || res.Source != hybridlimit.SourcePause || res.RetryAfter > 4*time.Second {
				t.Errorf("process %d: %+v", i, res)
			}
			if res := ask(t, l, "other", 1); !res.Allowed {
				t.Errorf("process %d, another key: %+v", i, res)
			}
		}
		for i := 0; time.Since(began) < 4700*time.Millisecond; i++ {
			if res := ask(t, ls[i%3], "k", 1); res.Allowed {
				t.Fatalf("admitted after %v: %+v", time.Since(began), res)
			}
			time.Sleep(time.Millisecond) // denials of the penalty make it no longer
		}
		time.Sleep(time.Until(began.Add(5200 * time.Millisecond)))
		for i, l := range ls {
			if res := ask(t, l, "k", 1); !res.Allowed {
				t.Errorf("process %d after the penalty: %+v", i, res)
			}
		}
	})
}

// TestPenaltyOfOthers gives no penalty for denials that the limit does not make.
func TestPenaltyOfOthers(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		penalty := hybrid.Penalty{After: 5, Within: time.Minute, For: time.Minute}
		l := newLimiter(t, b.Client(nil), still(10), hybrid.Config{Mode: mode, Penalty: penalty, LimitFor: func(key string) hybridlimit.Limit {
			if key == "blocked" {
				return hybridlimit.Blocked()
			}
			return still(10)
		}})
		time.Sleep(3 * time.Second)
		for range 20 {
			if res := ask(t, l, "k", 11); res.Source == hybridlimit.SourcePause {
				t.Fatalf("a cost above the burst: %+v", res)
			}
			if res := ask(t, l, "blocked", 1); res.Source == hybridlimit.SourcePause {
				t.Fatalf("a key that is blocked: %+v", res)
			}
		}
		if err := l.SetSwitch(hybrid.SwitchDenyAll); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			ask(t, l, "k", 1)
		}
		l.ClearSwitch()
		if err := l.SetSwitch(hybrid.SwitchShadow); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			if res := ask(t, l, "k", 1); !res.Allowed {
				t.Fatalf("in shadow: %+v", res)
			}
		}
		l.ClearSwitch()
		if res := ask(t, l, "k", 1); res.Source == hybridlimit.SourcePause {
			t.Errorf("after denials by a switch and in shadow: %+v", res)
		}
	})
}

func TestPenaltyIsChecked(t *testing.T) {
	for _, tc := range []struct {
		p     hybrid.Penalty
		wants []string
	}{
		{hybrid.Penalty{After: -1}, []string{"Config.Penalty.After (-1) must not be negative"}},
		{hybrid.Penalty{Within: time.Second, For: time.Second}, []string{"Config.Penalty.After (0) must be above 0"}},
		{hybrid.Penalty{After: 5}, []string{"Config.Penalty.Within (0s) must be above 0", "Config.Penalty.For (0s) must be above 0"}},
		{hybrid.Penalty{After: 5, Within: -1, For: 11 * time.Minute}, []string{"Config.Penalty.Within (-1ns)", "Config.Penalty.For (11m0s) must be at most 10m0s"}},
	} {
		_, err := hybrid.New(redistest.New(t).Client(t), still(10), hybrid.Config{Name: "api", Penalty: tc.p})
		for _, want := range tc.wants {
			if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", tc.p, err, want)
			}
		}
	}
}
