package hybrid_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
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
