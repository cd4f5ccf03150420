package global_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// evals returns how often a node has run the library.
func evals(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	calls := redistest.Calls(t, rdb)
	return calls["eval"] + calls["evalsha"] + calls["fcall"]
}

// TestSlotMoves checks that decisions follow a slot to another node: by ASK during the
// move, and by MOVED after it. Neither loses a unit or an answer.
func TestSlotMoves(t *testing.T) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slotMoves(t, functions)
		})
	}
}

func slotMoves(t *testing.T, functions bool) {
	do := redistest.Do
	a, b := redistest.NewClusterNode(t), redistest.NewClusterNode(t)
	ca, cb := a.Client(t), b.Client(t)
	if functions {
		redistest.NeedFunctions(t, ca)
	}
	redistest.AddSlots(t, ca, 0, 16384)
	do(t, cb, "CLUSTER", "MEET", "127.0.0.1", a.Port(), a.Port()+redistest.BusOffset)
	redistest.AwaitCluster(t, ca, 1)
	redistest.AwaitCluster(t, cb, 1)
	ida, idb := do(t, ca, "CLUSTER", "MYID"), do(t, cb, "CLUSTER", "MYID")
	redistest.Eventually(t, 20*time.Second, "the nodes know each other", func() bool {
		return strings.Contains(do(t, ca, "CLUSTER", "NODES"), idb) && strings.Contains(do(t, cb, "CLUSTER", "NODES"), ida+" 127.0.0.1:"+strconv.Itoa(a.Port()))
	})

	first := &redistest.Cluster{Nodes: []*redistest.Server{a}}
	cfg := global.Config{Tags: 1, Timeout: 30 * time.Second, Functions: functions}
	l := newLimiter(t, first.Client(t), hourly, cfg)
	if res := allow(t, l, "stays", 5); res.Remaining != 95 {
		t.Fatalf("%+v", res)
	}
	// This client is not used during the move, so that it hears of the move by MOVED. After an
	// ASK, go-redis reads the owners of the slots in the background.
	unaware := newLimiter(t, first.Client(t), hourly, cfg)
	if res := allow(t, unaware, "stays", 5); res.Remaining != 90 {
		t.Fatalf("%+v", res)
	}

	slot, err := ca.ClusterKeySlot(t.Context(), "{0}").Result()
	if err != nil {
		t.Fatal(err)
	}
	do(t, cb, "CLUSTER", "SETSLOT", slot, "IMPORTING", ida)
	do(t, ca, "CLUSTER", "SETSLOT", slot, "MIGRATING", idb)
	if res := allow(t, l, "stays", 10); res.Remaining != 80 { // still at a
		t.Errorf("of the old node: %+v", res)
	}
	if res := allow(t, l, "new", 10); res.Remaining != 90 { // ASK
		t.Errorf("asked of the new node: %+v", res)
	}
	want := 2 // EVALSHA, EVAL
	if functions {
		want = 5 // FCALL; FCALL after a load on the old node; FCALL after a load on all masters; EVALSHA; EVAL
	}
	if n := evals(t, cb); n != want {
		t.Errorf("the new node ran %d calls, want %d", n, want)
	}

	// While the slot moves, a call cannot load the library where it is missing. So calls
	// send it once a second.
	loads, began := redistest.Calls(t, ca)["function|load"], time.Now()
	for i := range 50 {
		allow(t, l, fmt.Sprint("new", i), 1)
	}
	loads = redistest.Calls(t, ca)["function|load"] - loads
	if most := 2 + 2*int(time.Since(began)/time.Second); loads > most { // one for the owner, and one for all nodes
		t.Errorf("%d loads in %v", loads, time.Since(began))
	}

	stays := lua.Names{Prefix: "hl", Tags: 1}.State(0, "api", "stays")
	do(t, ca, "MIGRATE", "127.0.0.1", b.Port(), stays, 0, 5000)
	do(t, cb, "CLUSTER", "SETSLOT", slot, "NODE", idb)
	do(t, ca, "CLUSTER", "SETSLOT", slot, "NODE", idb)
	if res := allow(t, unaware, "fresh", 1); res.Remaining != 99 {
		t.Errorf("moved: %+v", res)
	}
	for i := range int64(3) {
		for key, was := range map[string]int64{"stays": 80, "new": 90} {
			if res := allow(t, l, key, 10); res.Remaining != was-10*(i+1) {
				t.Errorf("%s after the move: %+v", key, res)
			}
		}
	}
	if calls := redistest.Calls(t, ca); calls["!ASK"] == 0 || calls["!MOVED"] == 0 {
		t.Errorf("the old node has not sent both ASK and MOVED: %v", calls)
	}
}

var _ redis.UniversalClient = (*redis.ClusterClient)(nil)
