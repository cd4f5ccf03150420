package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestSplitOverACluster splits a key into three parts, each on one of three masters. Each part has processes. One
// master dies: its processes decide by their share, and the others by Redis, as before.
func TestSplitOverACluster(t *testing.T) {
	t.Parallel()
	const of = 3
	cluster := redistest.NewCluster(t, 3)
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	masterOf := func(state string) int {
		slot, err := cluster.Nodes[0].Client(t).ClusterKeySlot(t.Context(), state).Result()
		if err != nil {
			t.Fatal(err)
		}
		return int(slot) * 3 / lua.MaxTags
	}
	key, state := "", func(key string, nth int) string {
		return names.PartState(names.PartTag(names.Tag(key), nth, of), "api", nth, of, key)
	}
	for i := 0; key == ""; i++ { // with 16 tags, two parts of some keys are on one master
		k := fmt.Sprint("hot", i)
		if a, b, c := masterOf(state(k, 1)), masterOf(state(k, 2)), masterOf(state(k, 3)); a != b && b != c && a != c {
			key = k
		}
	}
	limit := hybridlimit.TokenBucket(of, time.Hour, 3000)
	var ls [of + 1]*hybrid.Limiter // by part
	for have := 0; have < of; {
		cfg := hybrid.Config{Name: "api", Mode: hybrid.ModeExact, MaxWait: 5 * time.Second, Split: into(of)}
		cfg.Hub.SyncTimeout = time.Second
		l := newLimiter(t, cluster.Client(t), limit, cfg)
		i, err := l.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if ls[i.Part] == nil {
			ls[i.Part], have = l, have+1
		}
	}
	for nth := 1; nth <= of; nth++ {
		if res := ask(t, ls[nth], key, 1); !res.Allowed || res.Source != hybridlimit.SourceRedis {
			t.Errorf("part %d: %+v", nth, res)
		}
		node := cluster.Nodes[masterOf(state(key, nth))].Client(t)
		if n, err := node.Exists(t.Context(), state(key, nth)).Result(); err != nil || n != 1 {
			t.Errorf("part %d is not on its master: %v", nth, err)
		}
	}
	if i, err := ls[1].InspectRedis(t.Context(), key); err != nil || i.Redis == nil || i.Redis.Left != 3000-of {
		t.Errorf("Inspect: %+v, %v", i.Redis, err)
	}
	dead := 2
	cluster.Nodes[masterOf(state(key, dead))].Kill()
	redistest.Eventually(t, 30*time.Second, "the process of the dead part decides alone", func() bool {
		return ask(t, ls[dead], key, 1).Source == hybridlimit.SourceFallback
	})
	for range 20 {
		for nth := 1; nth <= of; nth++ {
			want := hybridlimit.SourceRedis
			if nth == dead {
				want = hybridlimit.SourceFallback
			}
			if res := ask(t, ls[nth], key, 1); !res.Allowed || res.Source != want {
				t.Errorf("part %d, while a master is dead: %+v", nth, res)
			}
		}
	}
	i, err := ls[1].InspectRedis(t.Context(), key)
	if err != nil || i.Redis != nil || i.RedisError == "" {
		t.Errorf("Inspect, while a master is dead: %+v, %v", i, err)
	}
}
