package hybrid_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// flood is the size of a flood. Each hot key gets more calls than it has units.
type flood struct {
	memory int    // keys
	hot    int    // keys that are used all the time
	every  int    // calls of the flood for one of a hot key
	total  int    // calls of the flood, when the memory is full
	grown  func() // called when the memory is full, and after each fourth of the flood
}

// aFlood returns the flood of the tests that do not measure the heap.
func aFlood() flood {
	f := flood{memory: 300, hot: 5, every: 6, total: 2400, grown: func() {}}
	if testenv.Full() {
		f.memory, f.every, f.total = 1000, 20, 8000
	}
	return f
}

// flooded is a limiter under a flood of keys that are used once, beside hot
// keys that are used all the time.
type flooded struct {
	l *hybrid.Limiter
	flood
	keys []string     // the hot ones
	got  atomic.Int64 // units of the hot keys
}

const hotUnits = 50

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
				if i%f.every == 0 {
					res, err := f.l.Allow(context.Background(), f.keys[i/f.every%f.hot])
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

// TestFloodOfKeys checks that a flood of distinct keys leaves only keys with a TTL in Redis, fills the memory up to MaxKeys, and does
// not make the limiter forget a key in use. TestHeapInAFlood measures the memory.
func TestFloodOfKeys(t *testing.T) { floodOfKeys(t, aFlood()) }

func floodOfKeys(t *testing.T, size flood) {
	t.Helper()
	rdb := redistest.New(t).Client(t)
	f := &flooded{flood: size, keys: keysOf("hot", size.hot)}
	cfg := patient(hybrid.Config{MaxKeys: f.memory, LimitFor: func(key string) hybridlimit.Limit {
		if strings.HasPrefix(key, "hot") {
			return still(hotUnits)
		}
		return hybridlimit.TokenBucket(100, time.Second, 10)
	}})
	f.l = newLimiter(t, rdb, hybridlimit.TokenBucket(100, time.Second, 10), cfg)
	ready(t, f.l)
	f.floodBy(t, 0, 4*f.memory) // now the memory is full, and the connections are open
	f.grown()
	began := time.Now()
	for round := range 4 {
		f.floodBy(t, 4*f.memory+round*f.total/4, f.total/4)
		f.grown()
	}
	s := f.l.Stats()
	t.Logf("%d decisions in %v; %d keys in memory, %d evicted, %d refused, %d keys in Redis", s.Decisions(), time.Since(began).Round(time.Millisecond), s.Keys, s.Evicted, s.Refused, rdb.DBSize(t.Context()).Val())
	if s.Keys > f.memory || s.Evicted < uint64(f.total/2) {
		t.Errorf("%d keys in memory, %d evicted", s.Keys, s.Evicted)
	}
	// Leased units that expire unspent are admitted to no caller. On a busy
	// machine that was once an eighth.
	got, most := f.got.Load(), int64(f.hot*hotUnits)
	less := s.Expired + s.Lost + s.Held + s.Uncertain
	if got > most || got < most-less || got < most/2 {
		t.Errorf("the keys in use got %d units, want %d, less at most the %d that ended with their leases, or without an answer: %+v",
			got, most, less, s)
	}
	for _, key := range f.keys {
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

// absence is a way in which Redis is missing.
type absence struct {
	name     string
	early    bool // down before the limiter is made
	down, up func(*redistest.Server) error
}

var withoutRedis = []absence{
	{name: "missing at the start", early: true, down: func(s *redistest.Server) error { s.Kill(); return nil }, up: (*redistest.Server).Restart},
	{name: "killed", down: func(s *redistest.Server) error { s.Kill(); return nil }, up: (*redistest.Server).Restart},
	{name: "hung", down: (*redistest.Server).Pause, up: (*redistest.Server).Resume},
}

// TestFloodWithoutRedis checks that a flood of distinct keys fills the memory up to MaxKeys while Redis is missing, killed or hung.
// Keys in use get exactly their share meanwhile. TestHeapInAFloodWithoutRedis measures the memory.
func TestFloodWithoutRedis(t *testing.T) {
	for _, tc := range withoutRedis {
		t.Run(tc.name, func(t *testing.T) { tc.flood(t, aFlood(), func() {}) })
	}
}

// flood calls free when Redis is back and all is paid.
func (tc absence) flood(t *testing.T, size flood, free func()) {
	t.Helper()
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
	f := &flooded{flood: size, keys: keysOf("hot", size.hot)}
	attackers := hybridlimit.TokenBucket(100, time.Second, 10)
	f.l = newLimiter(t, rdb, attackers, hybrid.Config{MaxKeys: f.memory, LimitFor: func(key string) hybridlimit.Limit {
		if strings.HasPrefix(key, "hot") {
			return still(hotUnits)
		}
		return attackers
	}})
	if !tc.early {
		ready(t, f.l)
		down()
	}
	f.floodBy(t, 0, 2*f.memory)
	redistest.Eventually(t, 30*time.Second, "the breaker is open", func() bool {
		ask(t, f.l, "attacker-0", 1)
		return f.l.Stats().Breaker != breaker.Closed
	})
	f.grown()
	for round := range 4 {
		f.floodBy(t, 2*f.memory+round*f.total/4, f.total/4)
		f.grown()
	}
	for range hotUnits { // the rest of their shares
		for _, key := range f.keys {
			f.got.Add(ask(t, f.l, key, 1).Granted)
		}
	}
	if got, want := f.got.Load(), int64(f.hot*hotUnits); got != want {
		t.Errorf("the keys in use got %d units, want %d", got, want)
	}
	s := f.l.Stats()
	t.Logf("%d decisions; %d keys in memory, %d evicted, %d refused, %d by the overflow", s.Decisions(), s.Keys, s.Evicted, s.Refused, s.Overflow)
	if s.Keys > f.memory || s.Evicted+s.Refused < uint64(f.total/2) {
		t.Errorf("%d keys in memory, %d evicted, %d refused", s.Keys, s.Evicted, s.Refused)
	}
	if err := tc.up(srv); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 30*time.Second, "Redis is back and all is paid", func() bool {
		s := f.l.Stats()
		return s.Breaker == breaker.Closed && s.Owed == 0
	})
	free()
	shutdown(t, f.l) // answers of messages that hung may still come, and are booked in two steps
	balance(t, f.l.Stats())
}
