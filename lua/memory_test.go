package lua_test

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/lua"
)

// What a key of 20 bytes costs Redis, by MEMORY USAGE. Up to 44 bytes of text
// are embedded in the object that holds them; one more costs 16.
func TestMemoryOfABucket(t *testing.T) {
	st := realStore(t)
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	const user = "user-0123456789abcde" // 20 bytes
	key := names.State(names.Tag(user), "api", user)
	for name, tc := range map[string]struct {
		limit hybridlimit.Limit
		op    algo.Op
		later time.Duration
		most  int64 // bytes
	}{
		"just born":             {hybridlimit.PerSecond(100), algo.Op{Owed: 1}, 0, 136},
		"a minute old":          {hybridlimit.PerSecond(100), algo.Op{Owed: 70}, time.Minute, 136},
		"an hour old":           {hybridlimit.PerSecond(100), algo.Op{Owed: 70}, time.Hour, 152},
		"a year old, in debt":   {hybridlimit.PerMinute(1000), algo.Op{Owed: 1_900}, 365 * 24 * time.Hour, 152},
		"one a day, a year old": {hybridlimit.TokenBucket(1, 24*time.Hour, 100), algo.Op{Owed: 199}, 365 * 24 * time.Hour, 168},
	} {
		st.del(t, key)
		st.one(t, key, tc.limit, algo.Op{Owed: 1}, start)
		st.one(t, key, tc.limit, tc.op, start+tc.later.Microseconds())
		bytes, err := st.rdb.MemoryUsage(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, %q", name, bytes, st.get(t, key))
		if bytes > tc.most {
			t.Errorf("%s: %d bytes, at most %d", name, bytes, tc.most)
		}
	}
}
