package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

func (st store) setSwitch(t *testing.T, to int64, ttl time.Duration) wire.Flag {
	t.Helper()
	return st.flag(t, func() (keys, argv []string) { return wire.EncodeSwitch(switchKey, to, ttl) })
}

func (st store) readSwitch(t *testing.T) wire.Flag {
	t.Helper()
	return st.flag(t, func() (keys, argv []string) { return wire.EncodeSwitchRead(switchKey) })
}

func (st store) flag(t *testing.T, encode func() (keys, argv []string)) wire.Flag {
	t.Helper()
	keys, argv := encode()
	raw, err := st.run(lua.SetSwitch, keys, argv)
	if err != nil {
		t.Fatal(err)
	}
	f, err := wire.DecodeSwitch(raw)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSwitchIsToldWithHeartbeats(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		if f := st.readSwitch(t); f != (wire.Flag{}) {
			t.Errorf("before any was set: %+v", f)
		}
		if b := st.pulse(t, wire.Pulse{Process: "a"}); b.Flag != (wire.Flag{}) || st.get(t, switchKey) != "" {
			t.Errorf("before any was set: %+v, %q", b, st.get(t, switchKey))
		}
		began := st.redisTime(t)
		var last wire.Flag
		for _, to := range []int64{3, 3, 0, 999_999_999} {
			f := st.setSwitch(t, to, time.Hour)
			if f.Switch != to || f.At < began || f.At <= last.At {
				t.Errorf("set to %d: %+v after %+v", to, f, last)
			}
			if b := st.pulse(t, wire.Pulse{Process: "a"}); b.Flag != f || b.Alive != 1 {
				t.Errorf("heartbeat: %+v, want %+v", b, f)
			}
			if got := st.readSwitch(t); got != f {
				t.Errorf("read %+v, want %+v", got, f)
			}
			last = f
		}
	})
}

// Heartbeats restore the switch in a Redis that was wiped or rolled back. The later of two
// switches holds, in any order of the heartbeats.
func TestSwitchOutlivesRedis(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		old := st.setSwitch(t, 4, time.Hour)
		seen := st.setSwitch(t, 2, time.Hour)
		st.del(t, switchKey, fleetKey)
		if b := st.pulse(t, wire.Pulse{Process: "late", Seen: old}); b.Flag != old {
			t.Errorf("after a heartbeat with %+v the switch is %+v", old, b.Flag)
		}
		if b := st.pulse(t, wire.Pulse{Process: "a", Seen: seen}); b.Flag != seen {
			t.Errorf("after a heartbeat with %+v the switch is %+v", seen, b.Flag)
		}
		if b := st.pulse(t, wire.Pulse{Process: "late", Seen: old}); b.Flag != seen || st.readSwitch(t) != seen {
			t.Errorf("the older switch came back: %+v", b.Flag)
		}
	})
}

// Regression: a switch with a time in the future outlived every later switch, and one with
// a time beyond 2^53 outlived a FLUSHALL.
func TestSwitchOfTheFutureIsTakenBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, ahead := range []int64{st.redisTime(t) + time.Hour.Microseconds(), 1 << 53, 1<<53 + 2, 9999999999999999} {
			poison := wire.Flag{Switch: 4, At: ahead}
			st.set(t, switchKey, fmt.Sprintf("1 4 %d", ahead))
			before := st.redisTime(t)
			if f := st.readSwitch(t); f.Switch != 4 || f.At < before || f.At > st.redisTime(t) {
				t.Errorf("at %d: read as %+v, now %d", ahead, f, before)
			}
			set := st.setSwitch(t, 0, time.Hour)
			if set.Switch != 0 || set.At < before || set.At > st.redisTime(t)+1 {
				t.Errorf("at %d: set to %+v at %d", ahead, set, before)
			}
			// A process may have seen it before Redis's clock was set back, or from a version
			// that accepted it. Its heartbeat does not bring the switch back...
			if b := st.pulse(t, wire.Pulse{Process: "a", Seen: poison}); b.Flag != set || st.readSwitch(t) != set {
				t.Errorf("at %d: after a heartbeat with %+v the switch is %+v, want %+v", ahead, poison, b.Flag, set)
			}
			// ...unless Redis has lost all data. Then the switch can be set back.
			st.del(t, switchKey, fleetKey)
			if b := st.pulse(t, wire.Pulse{Process: "a", Seen: poison}); b.Flag.Switch != 4 || b.Flag.At > b.Now {
				t.Errorf("at %d: after a heartbeat with %+v the switch is %+v", ahead, poison, b.Flag)
			}
			if f := st.setSwitch(t, 0, time.Hour); st.readSwitch(t) != f || f.Switch != 0 {
				t.Errorf("at %d: set to %+v", ahead, f)
			}
		}
	})
}

// Fields of a later version stay.
func TestSwitchKeepsFields(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		at := st.redisTime(t)
		st.set(t, switchKey, fmt.Sprintf("1 2 %d x1f y-2", at))
		if f := st.readSwitch(t); f != (wire.Flag{Switch: 2, At: at}) {
			t.Errorf("%+v", f)
		}
		f := st.setSwitch(t, 3, time.Hour)
		if got, want := st.get(t, switchKey), fmt.Sprintf("1 3 %d x1f y-2", f.At); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// The switch lives one TTL beyond the last heartbeat of the fleet.
func TestSwitchExpires(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		near := func(what string, want time.Duration) {
			t.Helper()
			if got := st.ttl(t, switchKey); got > want || got < want-time.Minute {
				t.Errorf("%s: TTL %v, want %v", what, got, want)
			}
		}
		f := st.setSwitch(t, 1, time.Hour)
		near("set", time.Hour)
		st.pulse(t, wire.Pulse{Process: "a", TTL: 100 * time.Minute})
		near("a heartbeat within half of it", time.Hour)
		st.pulse(t, wire.Pulse{Process: "a", TTL: 3 * time.Hour})
		near("a heartbeat beyond half of it", 3*time.Hour)
		st.del(t, switchKey)
		st.pulse(t, wire.Pulse{Process: "a", Seen: f, TTL: 2 * time.Hour})
		near("told again", 2*time.Hour)
	})
}

// A text that the library cannot have written counts as no switch, and does not stop a
// heartbeat.
func TestUnreadableSwitchIsNone(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, text := range []string{"", "x", "1", "1 1", "2 1 1", "1 -1 1", "1 1 1 1", "1 1.5 1", "1 1 1\n", "1 9999999999 1", "1 1 99999999999999999", "1  1 1"} {
			st.set(t, switchKey, text)
			if f := st.readSwitch(t); f != (wire.Flag{}) {
				t.Errorf("%q: %+v", text, f)
			}
			if b := st.pulse(t, wire.Pulse{Process: "a"}); b.Flag != (wire.Flag{}) || b.Alive != 1 {
				t.Errorf("%q: %+v", text, b)
			}
		}
		st.del(t, switchKey)
		st.rdb.RPush(t.Context(), switchKey, "a", "b")
		if b := st.pulse(t, wire.Pulse{Process: "a"}); b.Flag != (wire.Flag{}) || b.Alive != 1 {
			t.Errorf("a list: %+v", b)
		}
		if f := st.setSwitch(t, 2, time.Hour); f.Switch != 2 || st.readSwitch(t) != f {
			t.Errorf("over a list: %+v", f)
		}
	})
}

// If an argument is unreadable, nothing is written.
func TestSwitchRefusesWhatItCannotRead(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, bad := range []string{"", "x", "-1", "1.5", "0x1", "1e3", strings.Repeat("9", 40)} {
			for i := range 3 {
				argv := []string{"me", "3000000", "0", "1", "1", "1000"}
				argv[3+i] = bad
				if n, err := st.run(lua.Fleet, []string{fleetKey, switchKey}, argv); err == nil || !strings.Contains(err.Error(), "HLFLEET ") {
					t.Errorf("heartbeat %q: %v, %v", argv, n, err)
				}
			}
			for _, argv := range [][]string{{bad, "1000"}, {"1", bad}} {
				if argv[0] == "" { // a read
					continue
				}
				if n, err := st.run(lua.SetSwitch, []string{switchKey}, argv); err == nil || !strings.Contains(err.Error(), "HLSWITCH ") {
					t.Errorf("set %q: %v, %v", argv, n, err)
				}
			}
		}
		if n, err := st.run(lua.SetSwitch, []string{switchKey}, []string{"1", "0"}); err == nil {
			t.Errorf("a TTL of 0: %v", n)
		}
		if n, err := st.run(lua.Fleet, []string{fleetKey}, []string{"me", "3000000", "0", "0", "0", "1"}); err == nil {
			t.Errorf("without the key of the switch: %v", n)
		}
		if got := st.dump(t); got != "" {
			t.Errorf("left %s", got)
		}
	})
}
