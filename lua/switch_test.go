package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

var switchKey, limitKey, keysKey, changedKey = fleetNames.Switch("api"), fleetNames.FleetLimit("api"), fleetNames.KeyLimits("api"), fleetNames.Changed()

func (st store) setSwitch(t *testing.T, to int64, ttl time.Duration) wire.Flag {
	t.Helper()
	return st.flag(t, func() (keys, argv []string) { return wire.EncodeSwitch(switchKey, changedKey, to, ttl) })
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

// tell sends the settings of api that a process saw last, and returns those of Redis.
func (st store) tell(t *testing.T, seen wire.Setting, ttl time.Duration) wire.Setting {
	t.Helper()
	return st.tellAll(t, ttl, seen).Of[0]
}

func (st store) tellAll(t *testing.T, ttl time.Duration, seen ...wire.Setting) wire.Settings {
	t.Helper()
	for i := range seen {
		if seen[i].SwitchKey == "" {
			seen[i].SwitchKey, seen[i].LimitKey, seen[i].KeysKey = switchKey, limitKey, keysKey
		}
	}
	keys, argv := wire.EncodeSettings(changedKey, seen, ttl)
	raw, err := st.run(lua.Settings, keys, argv)
	if err != nil {
		t.Fatal(err)
	}
	s, err := wire.DecodeSettings(raw, seen)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seeing tells the switch that a process saw last, and returns that of Redis.
func (st store) seeing(t *testing.T, f wire.Flag) wire.Flag {
	t.Helper()
	return st.tell(t, wire.Setting{Flag: f}, time.Hour).Flag
}

func (st store) setLimit(t *testing.T, text string) wire.FleetLimit {
	t.Helper()
	keys, argv := wire.EncodeFleetLimit(limitKey, changedKey, text, time.Hour)
	return st.fleetLimit(t, keys, argv)
}

func (st store) readLimit(t *testing.T) wire.FleetLimit {
	t.Helper()
	keys, argv := wire.EncodeFleetLimitRead(limitKey)
	return st.fleetLimit(t, keys, argv)
}

func (st store) fleetLimit(t *testing.T, keys, argv []string) wire.FleetLimit {
	t.Helper()
	raw, err := st.run(lua.SetLimit, keys, argv)
	if err != nil {
		t.Fatal(err)
	}
	l, err := wire.DecodeFleetLimit(raw)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSwitchIsTold(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		if f := st.readSwitch(t); f != (wire.Flag{}) {
			t.Errorf("before any was set: %+v", f)
		}
		if s := st.tell(t, wire.Setting{}, time.Hour); s.Flag != (wire.Flag{}) || s.Limit != (wire.FleetLimit{}) || st.dump(t) != "" {
			t.Errorf("before any was set: %+v, %q", s, st.dump(t))
		}
		began := st.redisTime(t)
		var last wire.Flag
		for _, to := range []int64{3, 3, 0, 999_999_999} {
			f := st.setSwitch(t, to, time.Hour)
			if f.Switch != to || f.At < began || f.At <= last.At {
				t.Errorf("set to %d: %+v after %+v", to, f, last)
			}
			if got := st.seeing(t, wire.Flag{}); got != f {
				t.Errorf("told %+v, want %+v", got, f)
			}
			if b := st.pulse(t, wire.Pulse{Process: "a"}); b.Changed != f.At {
				t.Errorf("a heartbeat tells a change at %d, want %d", b.Changed, f.At)
			}
			if got := st.readSwitch(t); got != f {
				t.Errorf("read %+v, want %+v", got, f)
			}
			last = f
		}
	})
}

// Processes restore the switch in a Redis that was wiped or rolled back. The later of two
// switches holds, in any order of the messages.
func TestSwitchOutlivesRedis(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		old := st.setSwitch(t, 4, time.Hour)
		seen := st.setSwitch(t, 2, time.Hour)
		st.del(t, switchKey, fleetKey)
		st.del(t, changedKey)
		if f := st.seeing(t, old); f != old {
			t.Errorf("told %+v, the switch is %+v", old, f)
		}
		if b := st.pulse(t, wire.Pulse{Process: "b"}); b.Changed != old.At {
			t.Errorf("a heartbeat tells a change at %d, want %d", b.Changed, old.At)
		}
		if f := st.seeing(t, seen); f != seen {
			t.Errorf("told %+v, the switch is %+v", seen, f)
		}
		if b := st.pulse(t, wire.Pulse{Process: "b"}); b.Changed != seen.At {
			t.Errorf("a heartbeat tells a change at %d, want %d", b.Changed, seen.At)
		}
		if f := st.seeing(t, old); f != seen || st.readSwitch(t) != seen {
			t.Errorf("the older switch came back: %+v", f)
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
			// that accepted it. It does not bring the switch back...
			if f := st.seeing(t, poison); f != set || st.readSwitch(t) != set {
				t.Errorf("at %d: told %+v, the switch is %+v, want %+v", ahead, poison, f, set)
			}
			// ...unless Redis has lost all data. Then the switch can be set back.
			st.del(t, switchKey, fleetKey)
			if f := st.seeing(t, poison); f.Switch != 4 || f.At > st.redisTime(t) {
				t.Errorf("at %d: told %+v, the switch is %+v", ahead, poison, f)
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

// The switch lives one TTL beyond the last message about settings.
func TestSwitchExpires(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		near := func(what string, want time.Duration) {
			t.Helper()
			for _, key := range []string{switchKey, changedKey} {
				if got := st.ttl(t, key); got > want || got < want-time.Minute {
					t.Errorf("%s: TTL of %s %v, want %v", what, key, got, want)
				}
			}
		}
		f := st.setSwitch(t, 1, time.Hour)
		near("set", time.Hour)
		st.tell(t, wire.Setting{}, 100*time.Minute)
		near("told within half of it", time.Hour)
		st.tell(t, wire.Setting{}, 3*time.Hour)
		near("told beyond half of it", 3*time.Hour)
		st.del(t, switchKey)
		st.tell(t, wire.Setting{Flag: f}, 2*time.Hour)
		near("told again", 2*time.Hour)
	})
}

// A text that the library cannot have written counts as no switch.
func TestUnreadableSwitchIsNone(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, text := range []string{"", "x", "1", "1 1", "2 1 1", "1 -1 1", "1 1 1 1", "1 1.5 1", "1 1 1\n", "1 9999999999 1", "1 1 99999999999999999", "1  1 1"} {
			st.set(t, switchKey, text)
			if f := st.readSwitch(t); f != (wire.Flag{}) {
				t.Errorf("%q: %+v", text, f)
			}
			if f := st.seeing(t, wire.Flag{}); f != (wire.Flag{}) {
				t.Errorf("%q: told %+v", text, f)
			}
		}
		st.del(t, switchKey)
		st.rdb.RPush(t.Context(), switchKey, "a", "b")
		if f := st.seeing(t, wire.Flag{}); f != (wire.Flag{}) {
			t.Errorf("a list: %+v", f)
		}
		if f := st.setSwitch(t, 2, time.Hour); f.Switch != 2 || st.readSwitch(t) != f {
			t.Errorf("over a list: %+v", f)
		}
	})
}

// If an argument is unreadable, nothing is written.
func TestSettingsRefuseWhatTheyCannotRead(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		refused := func(script lua.Script, prefix string, keys, argv []string) {
			t.Helper()
			if n, err := st.run(script, keys, argv); err == nil || !strings.Contains(err.Error(), prefix+" ") {
				t.Errorf("%q %q: %v, %v", keys, argv, n, err)
			}
		}
		keys, good := wire.EncodeSettings(changedKey, []wire.Setting{{SwitchKey: switchKey, LimitKey: limitKey, KeysKey: keysKey, Flag: wire.Flag{Switch: 1, At: 1}, Limit: wire.FleetLimit{Text: "5/s", At: 1}}}, time.Hour)
		numbers := []string{"", "x", "-1", "1.5", "0x1", "1e3", strings.Repeat("9", 40)}
		texts := []string{"a\n", "\x00", "é", strings.Repeat("a", 257)}
		for i, bads := range [][]string{numbers, numbers, numbers, texts, numbers} {
			for _, bad := range bads {
				argv := slices.Clone(good)
				argv[i] = bad
				refused(lua.Settings, "HLSETTINGS", keys, argv)
			}
		}
		refused(lua.Settings, "HLSETTINGS", keys, good[:4])
		refused(lua.Settings, "HLSETTINGS", keys[:2], good)
		refused(lua.Settings, "HLSETTINGS", nil, nil)
		for _, bad := range numbers {
			if bad != "" { // a read
				refused(lua.SetSwitch, "HLSWITCH", []string{switchKey, changedKey}, []string{bad, "1000"})
			}
			refused(lua.SetSwitch, "HLSWITCH", []string{switchKey, changedKey}, []string{"1", bad})
			refused(lua.SetLimit, "HLLIMIT", []string{limitKey, changedKey}, []string{"5/s", bad})
		}
		for _, bad := range texts {
			refused(lua.SetLimit, "HLLIMIT", []string{limitKey, changedKey}, []string{bad, "1000"})
		}
		refused(lua.SetSwitch, "HLSWITCH", []string{switchKey, changedKey}, []string{"1", "0"})
		refused(lua.SetSwitch, "HLSWITCH", []string{switchKey}, []string{"1", "1000"})
		refused(lua.SetLimit, "HLLIMIT", []string{limitKey}, []string{"5/s", "1000"})
		if got := st.dump(t); got != "" {
			t.Errorf("left %s", got)
		}
	})
}

func TestFleetLimitIsSetAndRead(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		if l := st.readLimit(t); l != (wire.FleetLimit{}) {
			t.Errorf("before any was set: %+v", l)
		}
		var last wire.FleetLimit
		for _, text := range []string{"100/s burst 200", "~ !x", "", "", strings.Repeat("a", 256)} {
			l := st.setLimit(t, text)
			if l.Text != text || l.At <= last.At || st.readLimit(t) != l {
				t.Errorf("set to %q: %+v after %+v, read %+v", text, l, last, st.readLimit(t))
			}
			if s := st.tell(t, wire.Setting{}, time.Hour); s.Limit != l {
				t.Errorf("told %+v, want %+v", s.Limit, l)
			}
			if b := st.pulse(t, wire.Pulse{Process: "a"}); b.Changed < l.At || b.Changed == last.At {
				t.Errorf("a heartbeat tells a change at %d after that to %+v", b.Changed, l)
			}
			last = l
		}
		if ttl := st.ttl(t, limitKey); ttl > time.Hour || ttl < 50*time.Minute {
			t.Errorf("TTL %v", ttl)
		}
	})
}

// Processes restore the limit in a Redis that was wiped. The later of two limits holds.
func TestFleetLimitOutlivesRedis(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		old, seen := st.setLimit(t, "5/s"), st.setLimit(t, "")
		st.del(t, limitKey, changedKey)
		for _, step := range []struct{ tell, want wire.FleetLimit }{{old, old}, {seen, seen}, {old, seen}, {wire.FleetLimit{}, seen}} {
			if s := st.tell(t, wire.Setting{Limit: step.tell}, time.Hour); s.Limit != step.want || st.readLimit(t) != step.want {
				t.Errorf("told %+v: %+v, want %+v", step.tell, s.Limit, step.want)
			}
		}
		st.set(t, limitKey, fmt.Sprintf("1 %d 7/s", st.redisTime(t)+time.Hour.Microseconds()))
		if l := st.setLimit(t, "9/s"); l.Text != "9/s" || l.At > st.redisTime(t)+1 {
			t.Errorf("over a limit of the future: %+v", l)
		}
	})
}

func TestUnreadableFleetLimitIsNone(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, text := range []string{"", "x", "1", "1 5", "2 5 a", "1 -5 a", "1 5 a\n", "1 99999999999999999 a", "1 5 " + strings.Repeat("a", 257)} {
			st.set(t, limitKey, text)
			if l := st.readLimit(t); l != (wire.FleetLimit{}) {
				t.Errorf("%q: %+v", text, l)
			}
			if s := st.tell(t, wire.Setting{}, time.Hour); s.Limit != (wire.FleetLimit{}) {
				t.Errorf("%q: told %+v", text, s.Limit)
			}
		}
		st.del(t, limitKey)
		st.rdb.RPush(t.Context(), limitKey, "a")
		if l := st.readLimit(t); l != (wire.FleetLimit{}) {
			t.Errorf("a list: %+v", l)
		}
	})
}

// The time of the last change is another one after each change, and after a loss it is
// another one than the processes know. Otherwise they would not ask.
func TestAChangeIsAlwaysNoticed(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		var known []int64
		noticed := func(what string) {
			t.Helper()
			b := st.pulse(t, wire.Pulse{Process: "a"})
			if slices.Contains(known, b.Changed) {
				t.Errorf("%s: the change at %d is known: %v", what, b.Changed, known)
			}
			known = append(known, b.Changed)
		}
		noticed("before")
		st.setSwitch(t, 1, time.Hour)
		noticed("a switch")
		st.setSwitch(t, 1, time.Hour)
		noticed("the same switch")
		l := st.setLimit(t, "5/s")
		noticed("a limit")
		// A process restores a limit that only it knows, while others know a later change.
		st.del(t, limitKey)
		st.tell(t, wire.Setting{Limit: l}, time.Hour)
		noticed("a limit that came back")
		for _, ahead := range []string{"9007199254740991", "99999999999999999", "x", ""} {
			st.set(t, changedKey, ahead)
			st.setLimit(t, "5/s")
			noticed("after " + ahead)
		}
		st.tell(t, wire.Setting{}, time.Hour)
		if b := st.pulse(t, wire.Pulse{Process: "a"}); b.Changed != known[len(known)-1] {
			t.Errorf("to tell nothing new moved the time from %d to %d", known[len(known)-1], b.Changed)
		}
	})
}
