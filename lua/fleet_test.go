package lua_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

const fleetKey, switchKey = "hl:v2:{3}:@fleet:api", "hl:v2:{3}:@switch:api"

// beat sends one heartbeat with an expiry of 3 s and returns the number of live processes.
func (st store) beat(t *testing.T, process, leave string) int64 {
	t.Helper()
	return int64(st.pulse(t, wire.Pulse{Process: process, Leave: leave == "1"}).Alive)
}

// pulse sends a heartbeat with an expiry of 3 s. The switch has a TTL of an hour unless p
// sets another.
func (st store) pulse(t *testing.T, p wire.Pulse) wire.Beat {
	t.Helper()
	p.Fleet, p.Switch, p.Expiry = fleetKey, switchKey, 3*time.Second
	if p.TTL == 0 {
		p.TTL = time.Hour
	}
	keys, argv := wire.EncodePulse(p)
	raw, err := st.run(lua.Fleet, keys, argv)
	if err != nil {
		t.Fatal(err)
	}
	beat, err := wire.DecodeBeat(raw)
	if err != nil {
		t.Fatal(err)
	}
	return beat
}

// redisTime returns Redis's clock in µs.
func (st store) redisTime(t *testing.T) int64 {
	t.Helper()
	now, err := st.rdb.Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMicro()
}

// place adds a process to the fleet as if its last heartbeat was that long ago.
func (st store) place(t *testing.T, process string, ago time.Duration) {
	t.Helper()
	z := redis.Z{Score: float64(st.redisTime(t) - ago.Microseconds()), Member: process}
	if err := st.rdb.ZAdd(context.Background(), fleetKey, z).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestFleetJoinsBeatsAndLeaves(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for i, step := range []struct {
			process, leave string
			want           int64
		}{
			{"a", "0", 1},
			{"a", "0", 1},
			{"b", "0", 2},
			{"c", "0", 3},
			{"b", "1", 2},
			{"b", "1", 2},
			{"stranger", "1", 2},
			{"b", "0", 3},
			{"a", "1", 2},
			{"b", "1", 1},
			{"c", "1", 0},
		} {
			if got := st.beat(t, step.process, step.leave); got != step.want {
				t.Errorf("step %d: %d alive, want %d", i, got, step.want)
			}
		}
		if got := st.dump(t); got != "" {
			t.Errorf("after the last process left, Redis holds %s", got)
		}
	})
}

func TestFleetForgetsTheSilent(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.place(t, "silent", 3001*time.Millisecond)
		st.place(t, "late", 2*time.Second) // a second to spare for a slow machine
		if got := st.beat(t, "me", "0"); got != 2 {
			t.Errorf("%d alive, want 2", got)
		}
		if got := st.beat(t, "me", "1"); got != 1 {
			t.Errorf("%d alive after this process left, want 1", got)
		}
	})
}

// Regression: after a step back of the clock, the heartbeats of other processes were in the
// future and were dropped. Until each process had sent its next heartbeat, the fleet size
// was too small, and credit exceeded its bound.
func TestFleetAfterClockStep(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.place(t, "near", -2*time.Second)
		st.place(t, "far", -time.Hour)
		if got := st.beat(t, "me", "0"); got != 3 {
			t.Errorf("%d alive, want 3", got)
		}
		// If they are gone, they expire like other processes.
		limit := float64(st.redisTime(t))
		for _, z := range st.rdb.ZRangeWithScores(context.Background(), fleetKey, 0, -1).Val() {
			if z.Score > limit || z.Score < limit-3e6 {
				t.Errorf("the heartbeat of %v is %v µs from now, want −3 s to 0", z.Member, z.Score-limit)
			}
		}
	})
}

func TestFleetKeyExpires(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, leave := range []string{"0", "0", "1"} {
			st.place(t, "other", 0)
			sent := time.Now()
			st.beat(t, "me", leave)
			if got := st.ttl(t, fleetKey); got > 6*time.Second || got < 6*time.Second-time.Since(sent)-time.Millisecond {
				t.Errorf("TTL %v", got)
			}
		}
	})
}

// Regression: PEXPIRE refuses an expiry that is out of range, and did so after the process
// was added. The key had no TTL.
func TestFleetRefusesBadExpiry(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, argv := range [][]string{
			nil,
			{"me"},
			{"me", "", "0"},
			{"me", "x", "0"},
			{"me", "0", "0"},
			{"me", "-5", "0"},
			{"me", "1.5", "0"},
			{"me", "1e30", "0"},
			{"me", "nan", "0"},
			{"me", "0x10", "0"},
			{"me", strings.Repeat("9", 40), "0"},
			{"me", "9223372036854775807", "0"},
		} {
			argv = append(argv, make([]string, max(0, 3-len(argv)))...)
			argv = append(argv, "0", "0", "3600000")
			if n, err := st.run(lua.Fleet, []string{fleetKey, switchKey}, argv); err == nil || !strings.Contains(err.Error(), "HLFLEET ") {
				t.Errorf("%q: %v, %v", argv, n, err)
			}
			if got := st.dump(t); got != "" {
				t.Errorf("%q left %s", argv, got)
			}
		}
	})
}
