package hybrid_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/conformance"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// nodes is a Redis of several servers. Each server has a part of the tags.
type nodes struct {
	rdb         redis.UniversalClient
	servers     []*redistest.Server
	conformance []how // each takes two seconds
}

type how struct {
	mode      hybrid.Mode
	functions bool
}

// TestNodes does not run in parallel with other tests, because some of these test a fleet
// at its highest load. Its two halves run in parallel, because they wait more than they
// work.
func TestNodes(t *testing.T) {
	t.Run("cluster", onCluster)
	t.Run("ring", onRing)
}

func onCluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3)
	n := nodes{c.Client(t), c.Nodes, []how{{hybrid.ModeAuto, false}, {hybrid.ModeAuto, true}, {hybrid.ModeExact, false}}}
	t.Run("together", n.check)
	n.noCrossSlot(t)
	t.Run("one master is killed", n.loseOne)
}

func onRing(t *testing.T) {
	t.Parallel()
	ring, servers := redistest.NewRing(t, 2)
	n := nodes{ring, servers, []how{{hybrid.ModeAuto, true}, {hybrid.ModeExact, false}}}
	t.Run("together", n.check)
	n.noCrossSlot(t)
}

// check runs the tests that leave the nodes unchanged, in parallel.
func (n nodes) check(t *testing.T) {
	t.Run("tags reach every node", n.spread)
	t.Run("subject", n.subject)
	var prefixes atomic.Int64
	conforms := func(how how, of conformance.Algorithm) {
		t.Run(fmt.Sprintf("conformance/%+v/%s", how, of.Name), func(t *testing.T) {
			t.Parallel()
			n.needFunctions(t, how.functions)
			spec := conformanceSpec(how.mode, of)
			spec.Name, spec.Exact, spec.RetryIsLowerBound = "", false, true // as in TestConformanceOnRedis
			spec.WindowSlack = 200 * time.Millisecond
			spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
				cfg := patient(hybrid.Config{Mode: how.mode})
				cfg.Hub.Prefix, cfg.Hub.Functions = fmt.Sprint("p", prefixes.Add(1)), how.functions
				return newLimiter(tb, n.rdb, limit, cfg)
			}
			conformance.Run(t, spec)
		})
	}
	for _, how := range n.conformance {
		conforms(how, conformance.Algorithms()[0])
	}
	for _, of := range conformance.Algorithms() { // their states have forms of their own
		if of.Name == "fixed window" || of.Name == "sliding log" {
			conforms(how{hybrid.ModeAuto, false}, of)
		}
	}
}

func (n nodes) needFunctions(t *testing.T, functions bool) {
	t.Helper()
	if functions {
		redistest.NeedFunctions(t, n.servers[0].Client(t))
	}
}

// noCrossSlot checks that no batch, envelope, epoch or heartbeat ever had keys of two slots.
func (n nodes) noCrossSlot(t *testing.T) {
	for i, s := range n.servers {
		for what := range redistest.Calls(t, s.Client(t)) {
			if strings.Contains(what, "CROSSSLOT") {
				t.Errorf("node %d sent %s", i, what)
			}
		}
	}
}

func (n nodes) spread(t *testing.T) {
	for name, functions := range withAndWithout {
		n.needFunctions(t, functions)
		cfg := patient(hybrid.Config{Mode: hybrid.ModeDeferred, SyncInterval: 5 * time.Millisecond})
		cfg.Hub.Prefix, cfg.Hub.Functions = "spread-"+name, functions
		l := newLimiter(t, n.rdb, still(1000), cfg)
		before := n.ran(t)
		keys := keysOf("k", 100)
		for _, k := range keys {
			ask(t, l, k, 1)
		}
		shutdown(t, l)
		after := n.ran(t)
		for i := range n.servers {
			if after[i]-before[i] < 5 {
				t.Errorf("%s: node %d ran %d calls", name, i, after[i]-before[i])
			}
		}
		names := lua.Names{Prefix: cfg.Hub.Prefix, Tags: lua.DefaultTags}
		for _, k := range keys {
			raw, err := n.rdb.Get(t.Context(), names.State(names.Tag(k), "api", k)).Result()
			if s, ok := wire.DecodeState(raw); err != nil || !ok || s.Since != 1 {
				t.Errorf("%s: %s holds %q, %v", name, k, raw, err)
			}
		}
		t.Logf("%s: %v, then %v calls", name, before, after)
	}
}

// ran returns how often each node has run a script or function of the library.
func (n nodes) ran(t *testing.T) []int {
	out := make([]int, len(n.servers))
	for i, s := range n.servers {
		calls := redistest.Calls(t, s.Client(t))
		out[i] = calls["eval"] + calls["evalsha"] + calls["fcall"]
	}
	return out
}

// subject checks that several limiters with one TagBy keep the states of a user in one
// slot, so that one message carries them.
func (n nodes) subject(t *testing.T) {
	cfg := patient(hybrid.Config{}).Hub
	cfg.Prefix = "subject"
	h := newHub(t, n.rdb, cfg)
	const users = 10
	limiters := []string{"second", "day", "writes"}
	for _, name := range limiters {
		l := add(t, h, still(1000), hybrid.Config{
			Name: name, MaxWait: 5 * time.Second,
			TagBy: func(key string) string { user, _, _ := strings.Cut(key, "/"); return user },
		})
		for u := range users {
			ask(t, l, fmt.Sprintf("u%d/%s", u, name), 1)
		}
	}
	where := map[string]map[string]bool{} // the tags of a user
	states := 0
	for _, s := range n.servers {
		for _, key := range s.Client(t).Keys(t.Context(), "subject:*:u*/*").Val() {
			parts := strings.Split(key, ":")
			user, _, _ := strings.Cut(parts[4], "/")
			if where[user] == nil {
				where[user] = map[string]bool{}
			}
			where[user][parts[2]] = true
			states++
		}
	}
	if states != users*len(limiters) || len(where) != users {
		t.Errorf("%d states of %d users", states, len(where))
	}
	for user, tags := range where {
		if len(tags) != 1 || !tags[fmt.Sprintf("{%d}", lua.Names{Tags: lua.DefaultTags}.Tag(user))] {
			t.Errorf("the states of %s are in %v", user, tags)
		}
	}
}

// loseOne checks that there is one breaker per tag: the tags of a dead master use the
// fallback, and the tags of other masters stay on the shared limit.
func (n nodes) loseOne(t *testing.T) {
	victim := n.servers[2]
	byMode := map[string][]*hybrid.Limiter{}
	for name, functions := range withAndWithout {
		cfg := hybrid.Config{
			Mode: hybrid.ModeExact, MaxWait: 5 * time.Second,
			Hub: hybrid.HubConfig{
				Prefix: "loss-" + name, FleetSize: 2, SyncTimeout: 5 * time.Second, Functions: functions,
				Breaker: breaker.Config{Failures: 2, FailureRatio: -1, SlowCall: -1, OpenFor: 300 * time.Millisecond},
			},
		}
		byMode[name] = []*hybrid.Limiter{newLimiter(t, n.rdb, still(1000), cfg), newLimiter(t, n.rdb, still(1000), cfg)}
	}
	names := lua.Names{Prefix: "any", Tags: lua.DefaultTags}
	cluster := n.rdb.(*redis.ClusterClient)
	var dead, alive []string
	for _, k := range keysOf("k", 48) {
		owner, err := cluster.MasterForKey(t.Context(), names.State(names.Tag(k), "api", k))
		if err != nil {
			t.Fatal(err)
		}
		if owner.Options().Addr == victim.Addr() {
			dead = append(dead, k)
		} else {
			alive = append(alive, k)
		}
	}
	if len(dead) < 5 || len(alive) < 20 {
		t.Fatalf("%d keys on the victim, %d elsewhere", len(dead), len(alive))
	}
	// decide asks each process for a unit of each key, and reports whether all answers have
	// the source want. left is the number of units before the calls, and Remaining must match
	// it; negative: Remaining is not checked.
	decide := func(keys []string, want hybridlimit.Source, left int64) (as bool) {
		var others atomic.Int64
		for _, ls := range byMode {
			var all sync.WaitGroup
			for _, k := range keys {
				all.Go(func() {
					for i, l := range ls {
						res, err := l.Allow(t.Context(), k)
						if err != nil {
							t.Errorf("%s: %v", k, err)
						}
						if res.Source != want {
							others.Add(1)
						} else if left >= 0 && res.Remaining != left-int64(i)-1 {
							t.Errorf("%s, process %d: %+v, not the shared limit with %d left", k, i, res, left)
						}
					}
				})
			}
			all.Wait()
		}
		return others.Load() == 0
	}
	if !decide(append(alive, dead...), hybridlimit.SourceRedis, 1000) {
		t.Error("Redis does not decide while all is well")
	}
	victim.Kill()
	redistest.Eventually(t, 20*time.Second, "the dead master's tags fall back", func() bool {
		return decide(dead, hybridlimit.SourceFallback, -1)
	})
	for i := range int64(5) {
		if !decide(alive, hybridlimit.SourceRedis, 998-2*i) {
			t.Error("a tag of another master has fallen back")
		}
	}
	// The master comes back empty, with its slots, and without the library.
	if err := victim.Restart(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 20*time.Second, "all tags are back on the shared limit", func() bool {
		return decide(dead, hybridlimit.SourceRedis, -1)
	})
	if !decide(alive, hybridlimit.SourceRedis, 988) {
		t.Error("a tag of another master has fallen back")
	}
}
