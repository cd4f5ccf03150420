package lua_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// compare reads back the keys that the batch wrote and removes their TTLs. The run's clock
// is not that of Redis, so no key may expire.
func (d *differ) compare(written map[string]int64, sent time.Time) {
	ctx := context.Background()
	type read struct {
		value *redis.StringCmd
		log   *redis.ZSliceCmd
		ttl   *redis.DurationCmd
	}
	reads := map[string]read{}
	pipe := d.st.rdb.Pipeline()
	for key := range d.home {
		r := read{ttl: pipe.PTTL(ctx, key)}
		if len(d.model[key].log) > 0 {
			r.log = pipe.ZRangeWithScores(ctx, key, 0, -1)
		} else {
			r.value = pipe.Get(ctx, key)
		}
		reads[key] = r
		pipe.Persist(ctx, key)
	}
	pipe.Exec(ctx) // a missing key is redis.Nil
	for key, r := range reads {
		m := d.model[key]
		want, got := "", ""
		if m.state.Born != 0 {
			want = lua.EncodeState(m.state)
			if s, ok := wire.DecodeState(want); !ok || s != m.state {
				d.t.Fatalf("%q decodes to %+v, want %+v", want, s, m.state)
			}
		}
		if r.log != nil {
			want, got = fmt.Sprint(m.log), fmt.Sprint(entries(r.log.Val()))
		} else if err := r.value.Err(); err != nil && err != redis.Nil {
			d.t.Fatalf("%s: %v, want %q", key, err, want)
		} else {
			got = r.value.Val()
		}
		if got != want {
			for i, op := range d.batch {
				if op.Key == key {
					d.t.Logf("%v %+v\n%+v", op.Limit, op.Op, d.reply.Answers[i])
				}
			}
			d.t.Fatalf("%s holds %q, want %q", key, got, want)
		}
		if ttl, ok := written[key]; ok && !m.empty() {
			most, got := time.Duration(ttl)*time.Millisecond, r.ttl.Val()
			if least := most - time.Since(sent) - time.Millisecond; got > most || got < least {
				d.t.Fatalf("%s: TTL %v, want %v", key, got, most)
			}
		}
	}
}

// entries decodes the members of a log.
func entries(members []redis.Z) []algo.Entry {
	var log []algo.Entry
	for _, z := range members {
		e, total := algo.Entry{At: int64(z.Score)}, int64(0)
		fmt.Sscanf(z.Member.(string), "%d %d %s", &total, &e.Units, &e.ID)
		log = append(log, e)
	}
	return log
}
