package global_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/conformance"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/lua"
)

// nodes is a Redis of several servers. Each has a part of the keys.
type nodes struct {
	rdb     redis.UniversalClient
	servers []*redistest.Server
}

// TestCluster and TestRing run the same tests with the two clients that spread keys over
// servers.
func TestCluster(t *testing.T) {
	t.Parallel() // a node takes two seconds to accept that it is up
	c := redistest.NewCluster(t, 3)
	onNodes(t, nodes{c.Client(t), c.Nodes}, "fixed window", "leaky queue")
}

func TestRing(t *testing.T) {
	t.Parallel()
	ring, servers := redistest.NewRing(t, 2)
	onNodes(t, nodes{ring, servers}, "sliding log", "leaky bucket")
}

// onNodes runs the suite for one algorithm with scripts, and for another one with functions.
// With testenv.Full it also runs it for the algorithms that differ in how Redis stores them.
func onNodes(t *testing.T, n nodes, withScripts, withFunctions string) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) {
			if functions {
				redistest.NeedFunctions(t, n.servers[0].Client(t))
			}
			cfg := global.Config{Prefix: name, Timeout: 30 * time.Second, Functions: functions}
			t.Run("limits", func(t *testing.T) { checkLimiter(t, n.rdb, functions) })
			t.Run("spread", func(t *testing.T) { n.spread(t, cfg) })
			t.Run("one node forgets the library", func(t *testing.T) { n.forgets(t, cfg) })
			t.Run("subject", func(t *testing.T) { n.subject(t, cfg) })
			t.Run("composition", func(t *testing.T) {
				for _, tags := range []int{1, 16} {
					cfg := global.Config{Prefix: fmt.Sprint(name, "-all-", tags), Tags: tags, Timeout: 30 * time.Second, Functions: functions}
					allOrNothing(t, n.rdb, cfg)
					allowAllConcurrently(t, n.rdb, cfg)
				}
			})
			var prefixes atomic.Int64
			for _, of := range conformance.Algorithms() {
				one := withScripts
				if functions {
					one = withFunctions
				}
				stored := of.Name == "token bucket" || !functions && (of.Name == "fixed window" || of.Name == "sliding log")
				if of.Name == one || stored && testenv.Full() {
					t.Run("conformance of "+of.Name, func(t *testing.T) {
						t.Parallel()
						conformance.Run(t, conformance.Spec{
							Bucket: of.Bucket,
							New: func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
								cfg := cfg
								cfg.Prefix = fmt.Sprint(name, prefixes.Add(1))
								return newLimiter(tb, n.rdb, limit, cfg)
							},
							Close: closeGlobal, Policy: "api", Exact: true, Light: !testenv.Full() || of.Name != "token bucket",
						})
					})
				}
			}
		})
	}
	for i, s := range n.servers {
		calls := redistest.Calls(t, s.Client(t))
		for what := range calls {
			if strings.Contains(what, "CROSSSLOT") {
				t.Errorf("node %d sent %s", i, what)
			}
		}
	}
}

// spread checks that the default tags reach every node.
func (n nodes) spread(t *testing.T, cfg global.Config) {
	l := newLimiter(t, n.rdb, hourly, cfg)
	before := n.evals(t)
	const keys = 200
	for i := range keys {
		allow(t, l, fmt.Sprint("k", i), 1)
	}
	after := n.evals(t)
	total := 0
	for i := range n.servers {
		ran := after[i] - before[i]
		total += ran
		if ran < keys/8 {
			t.Errorf("node %d ran %d of %d calls", i, ran, keys)
		}
	}
	if most := keys + 3*len(n.servers); total < keys || total > most {
		t.Errorf("%d calls for %d decisions", total, keys)
	}
	t.Logf("%v, then %v calls", before, after)
}

// forgets checks that the library is sent again to a node that has lost it, and only to
// that node.
func (n nodes) forgets(t *testing.T, cfg global.Config) {
	l := newLimiter(t, n.rdb, hourly, cfg)
	for i := range 50 {
		allow(t, l, fmt.Sprint("warm", i), 1)
	}
	loads := func(i int) int {
		c := redistest.Calls(t, n.servers[i].Client(t))
		return c["eval"] + c["function|load"]
	}
	var before []int
	for i := range n.servers {
		before = append(before, loads(i))
	}
	one := n.servers[0].Client(t)
	redistest.Do(t, one, "SCRIPT", "FLUSH")
	if cfg.Functions {
		redistest.Do(t, one, "FUNCTION", "FLUSH")
	}
	for i := range 50 {
		if res := allow(t, l, fmt.Sprint("warm", i), 1); res.Remaining != 98 {
			t.Errorf("%+v", res)
		}
	}
	for i := range n.servers {
		want := 0
		if i == 0 {
			want = 1
		}
		if got := loads(i) - before[i]; got != want {
			t.Errorf("node %d received the library %d times, want %d", i, got, want)
		}
	}
}

// subject checks that the limits of one user are in one slot.
func (n nodes) subject(t *testing.T, cfg global.Config) {
	cfg.Prefix += "-subject"
	cfg.TagBy = func(key string) string { user, _, _ := strings.Cut(key, "/"); return user }
	const users = 10
	for _, name := range []string{"second", "day", "writes"} {
		cfg.Name = name
		l := newLimiter(t, n.rdb, hourly, cfg)
		for u := range users {
			allow(t, l, fmt.Sprintf("u%d/%s", u, name), 1)
		}
	}
	slots := map[string]map[int64]bool{} // by user
	keys := 0
	for _, s := range n.servers {
		rdb := s.Client(t)
		for _, key := range rdb.Keys(t.Context(), cfg.Prefix+":*").Val() {
			parts := strings.Split(key, ":")
			user, _, _ := strings.Cut(parts[len(parts)-1], "/")
			tag := parts[2]
			if want := fmt.Sprintf("{%d}", (lua.Names{Tags: lua.DefaultTags}).Tag(user)); tag != want {
				t.Errorf("%s: tag %s, want %s", key, tag, want)
			}
			slot, err := rdb.ClusterKeySlot(t.Context(), key).Result()
			if err != nil { // not in cluster mode: use the tag instead
				slot = int64(lua.Names{Tags: lua.DefaultTags}.Tag(user))
			}
			if slots[user] == nil {
				slots[user] = map[int64]bool{}
			}
			slots[user][slot] = true
			keys++
		}
	}
	if keys != 3*users || len(slots) != users {
		t.Errorf("%d keys of %d users", keys, len(slots))
	}
	for user, in := range slots {
		if len(in) != 1 {
			t.Errorf("the keys of %s are in slots %v", user, in)
		}
	}
}

func (n nodes) evals(t *testing.T) []int {
	t.Helper()
	out := make([]int, len(n.servers))
	for i, s := range n.servers {
		out[i] = evals(t, s.Client(t))
	}
	return out
}
