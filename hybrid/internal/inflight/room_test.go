package inflight

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// TestMakeRoomLooksOnce checks that a limiter that is full of running calls looks at its keys once, and again after one is unused.
// Regression: each call of a key more looked at all keys, which took milliseconds for 100 000.
func TestMakeRoomLooksOnce(t *testing.T) {
	l := &Limiter{shards: make([]shard, shardCount)}
	l.room.Store(true)
	e := &entry{lim: l, shard: &l.shards[0], key: "k"}
	e.shard.keys = map[uint64]*entry{0: e}
	if !e.Fall(&permits.Conditions{Share: 1}, 1) {
		t.Fatal("no call runs")
	}
	if l.makeRoom() {
		t.Fatal("a key with a running call is forgotten")
	}
	e.shard.mu.Lock() // a look would wait for ever
	if l.makeRoom() {
		t.Error("there is room")
	}
	e.shard.mu.Unlock()
	l.control = &control.View{Control: new(control.Control)}
	if l.room.Load() {
		t.Error("a look is due before a key is unused")
	}
	if e.ReleasePermits(1); !l.room.Load() {
		t.Error("no look is due after a key is unused")
	}
}

// TestForgoneReset checks that a call that stops waiting for its Reset leaves nothing behind, and that the Reset stays due. Regression:
// an outage kept a channel for each such call, and another key could take the place of the key.
func TestForgoneReset(t *testing.T) {
	l := &Limiter{shards: make([]shard, shardCount)}
	e := &entry{lim: l, shard: &l.shards[0], key: "k"}
	e.shard.keys = map[uint64]*entry{0: e}
	for range 3 {
		done := make(chan struct{})
		e.resets = append(e.resets, done)
		e.Reset()
		e.forgo(done)
	}
	l.room.Store(true)
	if len(e.resets) != 0 || l.makeRoom() {
		t.Errorf("%d calls wait, and the key is in memory: %v", len(e.resets), !e.dropped)
	}
}
