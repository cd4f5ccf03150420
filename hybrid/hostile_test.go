package hybrid_test

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
	"github.com/hybridlimit/hybridlimit/lua"
)

// hostileKeys are keys made to be taken for something else, such as a command,
// a tag or a script.
var hostileKeys = []string{
	"\x00", "\x00\x00", "a\x00b", "a", "\r\n", "a\r\nb", "*1\r\n$8\r\nFLUSHALL\r\n", "$-1\r\n", "\xff\xfe", "\xc3\x28", "\xed\xa0\x80", "é", "e\u0301", "\u202eabc",
	"{", "}", "{}", "{}a", "{a}", "}{", "{0}", "{13}:api:x", "hl:v2:{0}:api:x", "a:b", ":", "::", "@epoch", "@fleet:api", "@switch:api", "@env:0",
	"'", "\"", "]]", "--[[", "' .. redis.call('FLUSHALL') .. '", "]] redis.call('FLUSHALL') --", "%s%d%n", "%d+", "(.*)", "\\", "\\0", "$1", "..", "../..",
	" ", "  ", "\t", "a b", "1 0 0 1", "i", " i", "nil", "0", "-1", "1e308", "*", "?", "[a]", "key with spaces", strings.Repeat("{", 100), strings.Repeat("x", 1<<16), strings.Repeat("x", 1<<16-1) + "y",
	strings.Repeat("\xff", 1<<16), strings.Repeat("{}", 1<<15),
}

// TestHostileKeys checks that every key has its own units in every limiter. No
// key chooses its slot, reaches another key, or sends a command to Redis.
func TestHostileKeys(t *testing.T) {
	rdb := redistest.New(t).Client(t)
	ctx := t.Context()
	if err := rdb.Set(ctx, "sentinel", "here", 0).Err(); err != nil {
		t.Fatal(err)
	}
	const maxKey = 1 << 16
	cfg := patient(hybrid.Config{Name: "hybrid", Mode: hybrid.ModeStrict, MaxKeyBytes: maxKey})
	h := newLimiter(t, rdb, still(3), cfg)
	g, err := global.New(rdb, still(3), global.Config{Name: "global", MaxKeyBytes: maxKey, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	log, err := global.New(rdb, hybridlimit.SlidingLog(3, time.Hour), global.Config{Name: "log", MaxKeyBytes: maxKey, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"sentinel": true}
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	for round := range 5 {
		for i, key := range hostileKeys {
			for _, l := range []struct {
				name string
				hybridlimit.Limiter
			}{{"hybrid", h}, {"global", g}, {"log", log}} {
				named := ctx // an entry of a log has a request ID, which is as hostile
				if id, err := hybridlimit.WithRequestID(ctx, key); err == nil {
					named = id
				}
				res, err := l.Allow(named, key)
				if err != nil || res.Allowed != (round < 3) {
					t.Errorf("%s, key %d (%.40q), call %d: %+v, %v", l.name, i, key, round, res, err)
				}
				want[names.State(names.Tag(key), l.name, key)] = true
			}
		}
	}
	entries, err := log.History(ctx, hostileKeys[3])
	if err != nil || len(entries) != 3 || entries[0].RequestID != hostileKeys[3] {
		t.Errorf("history %+v, %v", entries, err)
	}
	shutdown(t, h)
	iter := rdb.Scan(ctx, 0, "", 1000).Iterator()
	found := 0
	for iter.Next(ctx) {
		key := iter.Val()
		if key == "sentinel" {
			found++
			continue
		}
		rest, ok := strings.CutPrefix(key, "hl:v2:{")
		tag, part, closed := strings.Cut(rest, "}:")
		n, err := strconv.Atoi(tag)
		if !ok || !closed || err != nil || n < 0 || n >= lua.DefaultTags {
			t.Errorf("%.80q has none of the library's tags", key)
		}
		if want[key] {
			found++
		} else if !strings.HasPrefix(part, "@") {
			t.Errorf("%.80q belongs to no key of this test", key)
		}
		if ttl := rdb.PTTL(ctx, key).Val(); ttl <= 0 {
			t.Errorf("%.80q lives for %v", key, ttl)
		}
	}
	if err := iter.Err(); err != nil || found != len(want) {
		t.Errorf("%d of %d keys in Redis; %v", found, len(want), err)
	}
	if _, err := h.Allow(ctx, strings.Repeat("x", maxKey+1)); err == nil {
		t.Error("a key longer than MaxKeyBytes was accepted")
	}
}

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
