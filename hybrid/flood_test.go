//go:build !race

// Memory is measured without the race detector, which adds its own. Calls from many
// goroutines, also with evictions, are in other files.

package hybrid_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

// flooded is a limiter under a flood of keys that are used once, beside hot
// keys that are used all the time.
type flooded struct {
	l   *hybrid.Limiter
	rdb *redis.Client
	hot []string
	got atomic.Int64 // units of the hot keys
}

const (
	hotUnits  = 50
	floodKeys = 10_000 // in memory
)

// floodBy calls once for each of so many new keys, from several goroutines, and
// for the hot keys all the while.
func (f *flooded) floodBy(t *testing.T, from, keys int) {
	var wg sync.WaitGroup
	const callers = 32
	for g := range callers {
		wg.Go(func() {
			for i := g; i < keys; i += callers {
				if _, err := f.l.Allow(context.Background(), "attacker-"+strconv.Itoa(from+i)); err != nil {
					t.Error(err)
					return
				}
				if i%50 == 0 {
					res, err := f.l.Allow(context.Background(), f.hot[i/50%len(f.hot)])
					if err != nil {
						t.Error(err)
						return
					}
					f.got.Add(res.Granted)
				}
			}
		})
	}
	wg.Wait()
}

func heapNow() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestFloodOfKeys checks that a flood of distinct keys takes no more memory
// than MaxKeys allows, leaves only keys with a TTL in Redis, and does not make
// the limiter forget a key in use.
func TestFloodOfKeys(t *testing.T) {
	total := testenv.Runs(40_000, 10_000_000)
	if testenv.Full() && !testenv.Long() {
		total = 100_000
	}
	rdb := redistest.New(t).Client(t)
	f := &flooded{rdb: rdb, hot: keysOf("hot", 20)}
	cfg := patient(hybrid.Config{MaxKeys: floodKeys, LimitFor: func(key string) hybridlimit.Limit {
		if strings.HasPrefix(key, "hot") {
			return still(hotUnits)
		}
		return hybridlimit.TokenBucket(100, time.Second, 10)
	}})
	f.l = newLimiter(t, rdb, hybridlimit.TokenBucket(100, time.Second, 10), cfg)
	ready(t, f.l)
	f.floodBy(t, 0, 4*floodKeys) // now the memory is full, and the connections are open
	before, goroutines := heapNow(), runtime.NumGoroutine()
	began := time.Now()
	const rounds = 4
	for round := range rounds {
		f.floodBy(t, 4*floodKeys+round*total/rounds, total/rounds)
		now := heapNow()
		t.Logf("after %d keys: heap %.1f MB, at first %.1f MB; %d goroutines", (round+1)*total/rounds, now/1e6, before/1e6, runtime.NumGoroutine())
		// The memory of calls in flight differs from moment to moment: up to a
		// tenth of that of the keys, and some of go-redis and the runtime.
		if now > before*1.1+2e6 {
			t.Errorf("the heap grew from %.0f to %.0f bytes", before, now)
		}
	}
	if n := runtime.NumGoroutine(); n > goroutines+40 {
		t.Errorf("%d goroutines, %d at first", n, goroutines)
	}
	s := f.l.Stats()
	t.Logf("%d decisions in %v; %d keys in memory, %d evicted, %d refused, %d keys in Redis", s.Decisions(), time.Since(began).Round(time.Millisecond), s.Keys, s.Evicted, s.Refused, rdb.DBSize(t.Context()).Val())
	if s.Keys > floodKeys || s.Evicted < uint64(total/2) {
		t.Errorf("%d keys in memory, %d evicted", s.Keys, s.Evicted)
	}
	// Leased units that expire unspent are admitted to no caller. On a busy
	// machine that was once an eighth.
	got, most := f.got.Load(), int64(len(f.hot)*hotUnits)
	less := s.Expired + s.Lost + s.Held + s.Uncertain
	if got > most || got < most-less || got < most/2 {
		t.Errorf("the keys in use got %d units, want %d, less at most the %d that ended with their leases, or without an answer: %+v",
			got, most, less, s)
	}
	for _, key := range f.hot {
		if n := debited(t, rdb, "api", key); n != hotUnits {
			t.Errorf("%s: Redis debited %d of %d", key, n, hotUnits)
		}
	}
	balance(t, s)
	everyKeyExpires(t, rdb)
	// A state of an attacker's key lives for 2.1 s.
	redistest.Eventually(t, 60*time.Second, "Redis has forgotten the attacker", func() bool { return rdb.DBSize(t.Context()).Val() < 200 })
}

// everyKeyExpires fails for each key in Redis without a TTL.
func everyKeyExpires(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	eternal, err := rdb.Eval(ctx, `
local bad, cursor = 0, '0'
repeat
  local page = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do if redis.call('PTTL', key) == -1 then bad = bad + 1 end end
until cursor == '0'
return bad`, nil).Int64()
	if err != nil || eternal != 0 {
		t.Errorf("%d keys without a TTL; %v", eternal, err)
	}
}

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
