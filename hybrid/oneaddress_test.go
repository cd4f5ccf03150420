package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestAClusterBehindOneAddress checks a client for a single Redis that reaches a cluster, here as one node with all slots. Such a
// Redis refuses a message with keys of several slots. Nothing is lost by that, and calls under several limits are decided.
func TestAClusterBehindOneAddress(t *testing.T) {
	redistest.Need(t)
	t.Parallel()
	node := redistest.NewCluster(t, 1).Nodes[0]
	rdb := node.Client(t)
	cfg := patient(hybrid.Config{Mode: hybrid.ModeDeferred, SyncInterval: 5 * time.Millisecond})
	cfg.Hub.Prefix = "one"
	l := newLimiter(t, rdb, still(1000), cfg)
	keys := keysOf("k", 100)
	for _, k := range keys {
		ask(t, l, k, 1)
	}
	shutdown(t, l)
	if s := l.Stats(); s.Dropped > 0 || s.Allowed[hybridlimit.SourceFallback] > 0 {
		t.Errorf("%+v", s)
	}
	names := lua.Names{Prefix: "one", Tags: lua.DefaultTags}
	for _, k := range keys {
		raw, err := rdb.Get(t.Context(), names.State(names.Tag(k), "api", k)).Result()
		if s, ok := wire.DecodeState(raw); err != nil || !ok || s.Since != 1 {
			t.Errorf("%s holds %q, %v", k, raw, err)
		}
	}
	var asks []hybridlimit.Ask
	for i := range 4 {
		one, err := global.New(rdb, still(3), global.Config{Name: fmt.Sprint("g", i), Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		asks = append(asks, hybridlimit.Ask{Limiter: one, Key: keys[i], N: 1})
	}
	for i := range 4 {
		if res, err := hybridlimit.AllowAll(t.Context(), asks...); err != nil || res.Allowed != (i < 3) {
			t.Errorf("call %d: %+v, %v", i, res, err)
		}
	}
	for _, a := range asks {
		if res, err := a.Limiter.(*global.Limiter).Peek(t.Context(), a.Key); err != nil || res.Remaining != 0 {
			t.Errorf("%s: %+v, %v", a.Key, res, err)
		}
	}
}
