package hybrid_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

// TestFloodWithoutRedis checks that a flood of distinct keys takes no more
// memory than MaxKeys allows while Redis is missing, killed or hung. Keys in
// use get exactly their share meanwhile. The memory is free again when Redis is
// back.
func TestFloodWithoutRedis(t *testing.T) {
	total := testenv.Runs(60_000, 1_000_000)
	mayGrow := float64(testenv.Runs(4<<20, 16<<20)) // bytes
	for _, tc := range []struct {
		name     string
		early    bool // down before the limiter is made
		down, up func(*redistest.Server) error
	}{
		{name: "missing at the start", early: true, down: func(s *redistest.Server) error { s.Kill(); return nil }, up: (*redistest.Server).Restart},
		{name: "killed", down: func(s *redistest.Server) error { s.Kill(); return nil }, up: (*redistest.Server).Restart},
		{name: "hung", down: (*redistest.Server).Pause, up: (*redistest.Server).Resume},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := redistest.New(t)
			down := func() {
				if err := tc.down(srv); err != nil {
					t.Fatal(err)
				}
			}
			rdb := srv.Client(t, oneDial)
			if tc.early {
				down()
			}
			f := &flooded{rdb: rdb, hot: keysOf("hot", 20)}
			attackers := hybridlimit.TokenBucket(100, time.Second, 10)
			f.l = newLimiter(t, rdb, attackers, hybrid.Config{MaxKeys: floodKeys, LimitFor: func(key string) hybridlimit.Limit {
				if strings.HasPrefix(key, "hot") {
					return still(hotUnits)
				}
				return attackers
			}})
			if !tc.early {
				ready(t, f.l)
				down()
			}
			f.floodBy(t, 0, 2*floodKeys)
			redistest.Eventually(t, 30*time.Second, "the breaker is open", func() bool {
				ask(t, f.l, "attacker-0", 1)
				return f.l.Stats().Breaker != breaker.Closed
			})
			before, goroutines := heapNow(), runtime.NumGoroutine()
			const rounds = 4
			for round := range rounds {
				f.floodBy(t, 2*floodKeys+round*total/rounds, total/rounds)
				now := heapNow()
				t.Logf("after %d keys more: heap %.1f MB, at first %.1f MB; %d goroutines", (round+1)*total/rounds, now/1e6, before/1e6, runtime.NumGoroutine())
				if now > before+mayGrow {
					t.Errorf("the heap grew from %.0f to %.0f bytes", before, now)
				}
			}
			if n := runtime.NumGoroutine(); n > goroutines+40 {
				t.Errorf("%d goroutines, %d at first", n, goroutines)
			}
			for range hotUnits { // the rest of their shares
				for _, key := range f.hot {
					f.got.Add(ask(t, f.l, key, 1).Granted)
				}
			}
			if got, want := f.got.Load(), int64(len(f.hot)*hotUnits); got != want {
				t.Errorf("the keys in use got %d units, want %d", got, want)
			}
			s := f.l.Stats()
			t.Logf("%d decisions; %d keys in memory, %d evicted, %d refused, %d by the overflow", s.Decisions(), s.Keys, s.Evicted, s.Refused, s.Overflow)
			if s.Keys > floodKeys || s.Evicted+s.Refused < uint64(total/2) {
				t.Errorf("%d keys in memory, %d evicted, %d refused", s.Keys, s.Evicted, s.Refused)
			}
			if err := tc.up(srv); err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, 30*time.Second, "Redis is back and all is paid", func() bool {
				s := f.l.Stats()
				return s.Breaker == breaker.Closed && s.Owed == 0
			})
			redistest.Eventually(t, 30*time.Second, "the memory is free again", func() bool { return heapNow() < before*1.1+2e6 })
			balance(t, f.l.Stats())
		})
	}
}

// TestFloodWithARedisThatIsOfNoUse checks the same with a Redis that answers
// but does not help: full, refusing, slow.
func TestFloodWithARedisThatIsOfNoUse(t *testing.T) {
	answers := func(text string) func(b *redistest.Bubble, link *redistest.MemLink) {
		return func(b *redistest.Bubble, _ *redistest.MemLink) { b.Mini.SetError(text) }
	}
	for name, bring := range map[string]func(b *redistest.Bubble, link *redistest.MemLink){
		"full":               answers("OOM command not allowed when used memory > 'maxmemory'."),
		"without rights":     answers("NOPERM this user has no permissions to run the 'evalsha' command"),
		"loading":            answers("LOADING Redis is loading the dataset in memory"),
		"refuses each batch": answers("HLBATCH unreadable op 1"),
		"slower than SlowCall": func(_ *redistest.Bubble, link *redistest.MemLink) {
			link.Latency(100*time.Millisecond, 100*time.Millisecond)
		},
		"slower than time-outs": func(_ *redistest.Bubble, link *redistest.MemLink) {
			link.Latency(time.Second, time.Second)
		},
		"half of it is lost": func(_ *redistest.Bubble, link *redistest.MemLink) {
			link.Script(func(n int, cmd []string) redistest.Verdict {
				if n%2 == 0 && strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
					return redistest.DropReply(redistest.ThenClose)
				}
				return redistest.Forward()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				const keys = 1000
				l := newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(1000, time.Second, 10), hybrid.Config{MaxKeys: keys, MaxWait: time.Millisecond})
				time.Sleep(3 * time.Second)
				bring(b, link)
				flood := func(from, n int) {
					for i := range n {
						ask(t, l, fmt.Sprint("attacker-", from+i), 1)
						if i%500 == 499 {
							time.Sleep(10 * time.Millisecond)
						}
					}
				}
				flood(0, 4*keys)
				before := heapNow()
				flood(4*keys, 20*keys)
				now := heapNow()
				if now > before+3e6 {
					t.Errorf("the heap grew from %.0f to %.0f bytes", before, now)
				}
				if s := l.Stats(); s.Keys > keys || s.Evicted+s.Refused < 10*keys {
					t.Errorf("%d keys in memory, %d evicted, %d refused", s.Keys, s.Evicted, s.Refused)
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}
