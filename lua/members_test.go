package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

var membersKey = fleetNames.Members()

// member sends a heartbeat with a part about permits.
func (st store) member(t *testing.T, process string, losses int64, suspects ...string) wire.Beat {
	t.Helper()
	return st.pulse(t, wire.Pulse{Process: process, Members: membersKey, Member: &permits.Pulse{Losses: losses, Suspects: suspects}})
}

// TestMembers checks the losses of a fleet, and the last heartbeats of its processes.
func TestMembers(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.beat(t, "old", "0") // a heartbeat without the part
		if st.rdb.Exists(context.Background(), membersKey).Val() != 0 {
			t.Error("a heartbeat without the part has made a member")
		}
		before := st.redisTime(t)
		first := st.member(t, "a", 0, "a", "b")
		if first.Losses < before || first.Losses > st.redisTime(t) || first.Alive != 2 {
			t.Errorf("the losses begin with %d, and the time was %d; %d alive", first.Losses, before, first.Alive)
		}
		if first.Beats[0] != first.Now || first.Beats[1] != 0 {
			t.Errorf("heartbeats %v at %d", first.Beats, first.Now)
		}
		b := st.member(t, "b", 3, "a", "old", "b", "a")
		if want := []int64{first.Now, 0, b.Now, first.Now}; b.Losses != first.Losses+3 || !slices.Equal(b.Beats, want) {
			t.Errorf("%+v, want the heartbeats %v", b, want)
		}
		again := st.member(t, "a", 1000000)
		if again.Losses != first.Losses+1000003 || len(again.Beats) != 0 {
			t.Errorf("%+v", again)
		}
		left := st.pulse(t, wire.Pulse{Process: "b", Leave: true, Members: membersKey, Member: &permits.Pulse{Suspects: []string{"a", "b"}}})
		if left.Beats[0] != again.Now || left.Beats[1] != 0 {
			t.Errorf("after b has left: %v", left.Beats)
		}
		if ttl := st.ttl(t, membersKey); ttl > 2*time.Minute || ttl < 110*time.Second {
			t.Errorf("TTL %v", ttl)
		}
		st.del(t, membersKey)
		if lost := st.member(t, "a", 0, "b"); lost.Losses == again.Losses || lost.Losses < before {
			t.Errorf("after an eviction, the losses are %d, and were %d", lost.Losses, again.Losses)
		}
	})
}

// TestMembersForget checks that silent processes are dropped, and those whose heartbeat is ahead of the clock.
func TestMembersForget(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		now := float64(st.redisTime(t))
		ctx := context.Background()
		losses := st.member(t, "me", 0).Losses
		for name, at := range map[string]float64{"silent": now - 121e6, "quiet": now - 60e6, "ahead": now + 60e6, "far": now + 200e6} {
			st.rdb.ZAdd(ctx, membersKey, redis.Z{Score: at, Member: name})
		}
		b := st.member(t, "me", 0, "silent", "quiet", "ahead", "far")
		if b.Beats[0] != 0 || b.Beats[1] == 0 || b.Beats[2] == 0 || b.Beats[3] != 0 || b.Losses != losses {
			t.Errorf("%+v", b)
		}
		for _, bad := range []float64{0, 5, -1e17} { // that the library cannot have written
			st.rdb.ZAdd(ctx, membersKey, redis.Z{Score: bad, Member: ""})
			if b := st.member(t, "me", 1); b.Losses < int64(now) || b.Losses > st.redisTime(t)+1 {
				t.Errorf("after %v: %+v", bad, b)
			}
		}
		for _, wrong := range []func(){
			func() { st.rdb.Set(ctx, membersKey, "x", 0) },
			func() { st.rdb.HSet(ctx, membersKey, "a", "1") },
			func() { st.rdb.RPush(ctx, membersKey, "a") },
		} {
			st.del(t, membersKey)
			wrong()
			if b := st.member(t, "me", 0, "me"); b.Beats[0] != b.Now || st.ttl(t, membersKey) <= 0 {
				t.Errorf("a key of another type: %+v", b)
			}
		}
	})
}

// TestMembersRefuse checks the text of the part.
func TestMembersRefuse(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		many := make([]string, 65)
		for i := range many {
			many[i] = fmt.Sprintf("p%d", i)
		}
		if b := st.member(t, "me", 0, many[:64]...); len(b.Beats) != 64 {
			t.Errorf("%d heartbeats of 64 suspects", len(b.Beats))
		}
		keys, argv := wire.EncodePulse(filled(wire.Pulse{Process: "me", Members: membersKey, Member: &permits.Pulse{}}))
		for _, bad := range []string{
			"", "x", "-1", "1.5", "1000001", "99999999999999999999", "0 a:b", "0  a", "0 a ", "0 " + strings.Repeat("a", 65), "0 " + strings.Join(many, " "),
		} {
			if n, err := st.run(lua.Fleet, keys, append(slices.Clone(argv[:6]), bad)); err == nil || !strings.Contains(err.Error(), "HLFLEET unreadable part") {
				t.Errorf("%.100q: %v, %v", bad, n, err)
			}
		}
		if n, err := st.run(lua.Fleet, keys[:6], argv); err == nil || !strings.Contains(err.Error(), "HLFLEET ") {
			t.Errorf("without the key: %v, %v", n, err)
		}
	})
}
