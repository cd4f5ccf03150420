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

var fleetNames = lua.Names{Prefix: "hl", Tags: lua.DefaultTags}

// listed is the time for which a group is in the directory after a heartbeat that wrote it.
const listed = time.Minute

// fleetKey is the set of the group in which tests beat, unless they name another.
var fleetKey = fleetNames.Group("g")

// beat sends one heartbeat with an expiry of 3 s and returns the number of live processes
// of its group.
func (st store) beat(t *testing.T, process, leave string) int64 {
	t.Helper()
	return st.pulse(t, wire.Pulse{Process: process, Leave: leave == "1"}).Alive
}

// inGroup returns a heartbeat of a group.
func inGroup(id, process string) wire.Pulse { return wire.Pulse{ID: id, Process: process} }

// pulse sends a heartbeat. The group is g, and the expiry is 3 s, unless p has others.
func (st store) pulse(t testing.TB, p wire.Pulse) wire.Beat {
	t.Helper()
	b, err := st.tryPulse(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (st store) tryPulse(p wire.Pulse) (wire.Beat, error) {
	p = filled(p)
	keys, argv := wire.EncodePulse(p)
	raw, err := st.run(lua.Fleet, keys, argv)
	if err != nil {
		return wire.Beat{}, err
	}
	return wire.DecodeBeat(raw, p)
}

func filled(p wire.Pulse) wire.Pulse {
	if p.ID == "" {
		p.ID = "g"
	}
	if p.Expiry == 0 {
		p.Expiry = 3 * time.Second
	}
	p.Group, p.Names = fleetNames.Group(p.ID), fleetNames.GroupNames(p.ID)
	p.Directory, p.Changed, p.TTL = fleetNames.Groups(), fleetNames.Changed(), 24*time.Hour
	p.Wanted, p.Paused = fleetNames.Wanted(), fleetNames.Paused()
	return p
}

// redisTime returns Redis's clock in µs.
func (st store) redisTime(t testing.TB) int64 {
	t.Helper()
	now, err := st.rdb.Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMicro()
}

// place adds a process to g as if its last heartbeat expired that long ago.
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
		st.place(t, "silent", time.Millisecond)
		st.place(t, "late", -time.Second) // a second to spare for a slow machine
		if got := st.beat(t, "me", "0"); got != 2 {
			t.Errorf("%d alive, want 2", got)
		}
		if got := st.beat(t, "me", "1"); got != 1 {
			t.Errorf("%d alive after this process left, want 1", got)
		}
	})
}

// A process that beats seldom is counted until its own expiry, also by processes that beat
// often. Regression of the design: it was dropped by the expiry of the process that counted.
func TestFleetKeepsProcessesThatBeatSeldom(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		slow := filled(inGroup("other", "slow"))
		slow.Expiry = wire.MaxExpiry
		st.pulse(t, slow)
		slow.ID, slow.Process = "g", "slow too"
		st.pulse(t, slow)
		at := st.rdb.ZScore(context.Background(), fleetKey, "slow too").Val()
		b := st.pulse(t, wire.Pulse{Process: "often", Expiry: time.Millisecond, Others: []string{fleetNames.Group("other")}})
		if b.Alive != 2 || b.Others[0] != 1 {
			t.Errorf("%+v, want 2 and 1 alive", b)
		}
		if left := at - float64(b.Now); left < 20e6 || left > 30e6 {
			t.Errorf("the slow process is counted for %v µs, want 20 to 30 s", left)
		}
	})
}

// Regression: after a step back of the clock, the heartbeats of other processes were in the
// future and were dropped. Until each process had sent its next heartbeat, the fleet size
// was too small, and credit exceeded its bound.
func TestFleetAfterClockStep(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.place(t, "near", -40*time.Second)
		st.place(t, "far", -time.Hour)
		if got := st.beat(t, "me", "0"); got != 3 {
			t.Errorf("%d alive, want 3", got)
		}
		// If they are gone, they expire like other processes.
		limit := float64(st.redisTime(t) + wire.MaxExpiry.Microseconds())
		for _, z := range st.rdb.ZRangeWithScores(context.Background(), fleetKey, 0, -1).Val() {
			if z.Score > limit {
				t.Errorf("%v is counted for %v µs longer than the longest expiry", z.Member, z.Score-limit)
			}
		}
	})
}

func TestFleetKeysExpire(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		began := time.Now()
		for _, leave := range []string{"0", "0", "1"} {
			st.place(t, "other", -3*time.Second) // the set has no TTL until a process joins
			p := inGroup("g", "me")
			p.Leave, p.Text = leave == "1", "api login"
			st.pulse(t, p)
			for key, want := range map[string]time.Duration{fleetKey: 2 * time.Minute, fleetNames.Groups(): 24 * time.Hour, fleetNames.GroupNames("g"): 24 * time.Hour} {
				if got := st.ttl(t, key); got > want || got < want-time.Since(began)-time.Millisecond {
					t.Errorf("TTL of %s: %v, want %v", key, got, want)
				}
			}
		}
	})
}

// A set gets a TTL from the first process that joins it, also if its group is in the
// directory already, and again with each renewal of its place there.
func TestEverySetHasATTL(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		first := st.beat(t, "a", "0")
		st.del(t, fleetKey) // evicted
		st.beat(t, "b", "0")
		if got := st.ttl(t, fleetKey); first != 1 || got <= time.Minute {
			t.Errorf("a set of a known group: TTL %v", got)
		}
		st.rdb.PExpire(context.Background(), fleetKey, 70*time.Second)
		st.set(t, fleetNames.Groups(), st.groupsText(t, 77, map[string]time.Duration{"g": listed / 2}))
		st.beat(t, "b", "0")
		if got := st.ttl(t, fleetKey); got <= 110*time.Second {
			t.Errorf("after a renewal: TTL %v", got)
		}
	})
}

// A heartbeat tells the directory to those who know another one, counts the groups that
// it names, and reads the names that it asks for.
func TestFleetTellsGroups(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		first := st.pulse(t, wire.Pulse{ID: "g", Process: "a", Text: "api login"})
		if !first.Told || !slices.Equal(first.Groups, []string{"g"}) || first.Alive != 1 {
			t.Errorf("the first: %+v", first)
		}
		knows := wire.Pulse{ID: "g", Process: "b", Version: first.Version}
		if b := st.pulse(t, knows); b.Told || b.Version != first.Version || b.Alive != 2 {
			t.Errorf("known: %+v", b)
		}
		other := st.pulse(t, wire.Pulse{ID: "h", Process: "c", Version: first.Version, Others: []string{fleetNames.Group("g")}, Read: []string{fleetNames.GroupNames("g"), fleetNames.GroupNames("x")}})
		slices.Sort(other.Groups)
		if !other.Told || other.Version <= first.Version || !slices.Equal(other.Groups, []string{"g", "h"}) ||
			other.Alive != 1 || !slices.Equal(other.Others, []int64{2}) || !slices.Equal(other.Names, []string{"api login", ""}) {
			t.Errorf("of another group: %+v", other)
		}
		if b := st.pulse(t, knows); !b.Told || b.Version != other.Version {
			t.Errorf("after a group joined: %+v", b)
		}
	})
}

// A process moves between groups in one step: it is in one of them, and never in both or
// in none. A group without processes leaves the directory.
func TestFleetMovesBetweenGroups(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		ctx := context.Background()
		one := st.pulse(t, inGroup("g", "me"))
		move := inGroup("h", "me")
		move.Before = []string{fleetNames.Group("g"), fleetNames.Group("never")}
		moved := st.pulse(t, move)
		if moved.Before != one.Now+3e6 || moved.Alive != 1 || !slices.Equal(moved.Groups, []string{"h"}) || moved.Version <= one.Version {
			t.Errorf("%+v after %+v", moved, one)
		}
		if n := st.rdb.Exists(ctx, fleetNames.Group("g")).Val(); n != 0 {
			t.Error("the process is in the group before, too")
		}
		st.pulse(t, inGroup("h", "you"))
		back := inGroup("g", "me")
		back.Before = []string{fleetNames.Group("h")}
		if b := st.pulse(t, back); b.Before != moved.Now+3e6 || len(b.Groups) != 2 {
			t.Errorf("back: %+v", b)
		}
		if got := st.rdb.ZRange(ctx, fleetNames.Group("h"), 0, -1).Val(); !slices.Equal(got, []string{"you"}) {
			t.Errorf("h has %q", got)
		}
	})
}

// groupsText returns a directory with an expiry for each group, from now on.
func (st store) groupsText(t *testing.T, version int64, in map[string]time.Duration) string {
	now := st.redisTime(t)
	text := fmt.Sprintf("1 %d", version)
	for id, d := range in {
		text += fmt.Sprintf(" %s %d", id, now+d.Microseconds())
	}
	return text
}

// The directory is written about once in a third of its time, however many heartbeats
// there are. A group is in it for longer than its processes are counted.
func TestDirectoryIsSeldomWritten(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for left, want := range map[time.Duration]bool{listed - time.Second: false, listed*2/3 + 5*time.Second: false, listed*2/3 - time.Second: true, -time.Second: true, 2 * listed: true} {
			text := st.groupsText(t, 77, map[string]time.Duration{"g": left})
			st.set(t, fleetNames.Groups(), text)
			b := st.pulse(t, wire.Pulse{ID: "g", Process: "a", Version: 77})
			if got := st.get(t, fleetNames.Groups()) != text; got != want || b.Told || b.Version != 77 {
				t.Errorf("with %v left: written %v, %+v", left, got, b)
			}
		}
		if least := listed * 2 / 3; least <= wire.MaxExpiry {
			t.Errorf("a group may leave the directory after %v, and its processes are counted for %v", least, wire.MaxExpiry)
		}
	})
}

// A group that no process renews is dropped by the next process that writes.
func TestDirectoryDropsGroups(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.set(t, fleetNames.Groups(), st.groupsText(t, 77, map[string]time.Duration{"old": -time.Second, "kept": time.Second}))
		b := st.pulse(t, wire.Pulse{ID: "g", Process: "a", Version: 77})
		slices.Sort(b.Groups)
		if !b.Told || b.Version <= 77 || !slices.Equal(b.Groups, []string{"g", "kept"}) {
			t.Errorf("%+v", b)
		}
	})
}

// TestKeysOfOtherTypesEndNoHeartbeat checks that a key of another type counts as lost and is replaced, whichever it is
// of those that a heartbeat reads or writes. Cause: one such key stopped all heartbeats of a fleet while it existed.
func TestKeysOfOtherTypesEndNoHeartbeat(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, key := range []string{
			fleetNames.Group("g"), fleetNames.Group("old"), fleetNames.Group("other"), fleetNames.Groups(), fleetNames.Changed(), fleetNames.Wanted(), fleetNames.Paused(),
			fleetNames.GroupNames("g"), fleetNames.GroupNames("other"), fleetNames.Members(),
		} {
			for _, write := range [][]any{{"SET", key, "x"}, {"RPUSH", key, "x"}, {"HSET", key, "x", "y"}, {"SADD", key, "x"}} {
				if err := st.rdb.Del(t.Context(), key).Err(); err != nil {
					t.Fatal(err)
				}
				if err := st.rdb.Do(t.Context(), write...).Err(); err != nil {
					t.Fatal(err)
				}
				p := wire.Pulse{
					Process: "p", Text: "a", Before: []string{fleetNames.Group("old")}, Others: []string{fleetNames.Group("other")},
					Read: []string{fleetNames.GroupNames("other")}, Members: fleetNames.Members(), Member: &permits.Pulse{},
				}
				for range 2 {
					if b := st.pulse(t, p); b.Alive != 1 {
						t.Errorf("%v: %d processes are counted, want 1", write[:2], b.Alive)
					}
				}
			}
		}
	})
}

// A directory that the library cannot have written counts as lost, and each heartbeat puts
// its own group back.
func TestUnreadableDirectoryIsNone(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		now := st.redisTime(t)
		for _, text := range []string{
			"", "x", "1", "1 ", "2 5", "1 5 g", fmt.Sprintf("1 5 g %d x", now+50e6), "1 x", "1 -5", "1 5 g 7 h", "1 5\n", "1 5 g 99999999999999999",
			"1 99999999999999999 g 5", fmt.Sprintf("1 5 g %d h y", now+50e6), fmt.Sprintf("1 5 g:x 5 g %d", now+50e6),
		} {
			st.set(t, fleetNames.Groups(), text)
			b := st.pulse(t, inGroup("g", "a"))
			if !b.Told || b.Version < now || !slices.Equal(b.Groups, []string{"g"}) {
				t.Errorf("%q: %+v", text, b)
			}
		}
		st.del(t, fleetNames.Groups())
		st.rdb.RPush(t.Context(), fleetNames.Groups(), "a", "b")
		if b := st.pulse(t, inGroup("g", "a")); !slices.Equal(b.Groups, []string{"g"}) || st.pulse(t, inGroup("g", "a")).Version != b.Version {
			t.Errorf("a list: %+v", b)
		}
	})
}

// A process of one group too many is refused, because no other would count it. Processes of
// the groups in the directory go on.
func TestFleetRefusesTooManyGroups(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		in := map[string]time.Duration{}
		for i := range wire.MaxGroups {
			in[fmt.Sprint("group-number-", i)] = listed
		}
		text := st.groupsText(t, 77, in)
		st.set(t, fleetNames.Groups(), text)
		if b, err := st.tryPulse(inGroup("one-more", "a")); err == nil || !strings.Contains(err.Error(), "HLFLEET too many groups") {
			t.Errorf("%+v, %v", b, err)
		}
		if n := st.rdb.Exists(t.Context(), fleetNames.Group("one-more")).Val(); n != 0 || st.get(t, fleetNames.Groups()) != text {
			t.Error("the refused heartbeat left something")
		}
		if b := st.pulse(t, inGroup("group-number-7", "a")); len(b.Groups) != wire.MaxGroups || b.Alive != 1 {
			t.Errorf("%d groups, %d alive", len(b.Groups), b.Alive)
		}
		delete(in, "group-number-8")
		st.set(t, fleetNames.Groups(), st.groupsText(t, 77, in))
		if b := st.pulse(t, inGroup("one-more", "a")); len(b.Groups) != wire.MaxGroups {
			t.Errorf("with room: %d groups", len(b.Groups))
		}
	})
}

// Regression: PEXPIRE refuses an expiry that is out of range, and did so after the process
// was added. The key had no TTL.
func TestFleetRefusesWhatItCannotRead(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		keys, good := wire.EncodePulse(filled(wire.Pulse{Process: "me", Text: "api", Others: []string{fleetNames.Group("h")}}))
		refused := func(argv ...string) {
			t.Helper()
			if n, err := st.run(lua.Fleet, keys, argv); err == nil || !strings.Contains(err.Error(), "HLFLEET ") {
				t.Errorf("%.200q: %v, %v", argv, n, err)
			}
		}
		huge := []string{strings.Repeat("9", 40), "9223372036854775807"}
		for i, bads := range [][]string{
			append(huge, "", "x", "0", "-5", "1.5", "1e30", "nan", "0x10", "30000001"),
			{"", "2", "x"},
			{"", "0", "000", "-1", "x", strings.Repeat("9", 40)},
			{"", "-1", "x", "1e3", strings.Repeat("9", 40)},
			append(huge, "", "-1", "2", "x"),
			append(huge, "", "-1", "2", "x"),
		} {
			for _, bad := range bads {
				numbers := strings.Split(good[3], " ")
				numbers[i] = bad
				refused(good[0], good[1], good[2], strings.Join(numbers, " "), "", "0")
			}
		}
		for _, bad := range []string{"", "a b", "a:b", strings.Repeat("a", 33)} {
			refused(good[0], bad, good[2], good[3], "", "0")
		}
		refused(good[0], good[1], strings.Repeat("a", wire.MaxNames+1), good[3], "", "0")
		refused(good[0], good[1], good[2], good[3]+" 1", "", "0")
		for n := range good {
			refused(good[:n]...)
		}
		if n, err := st.run(lua.Fleet, keys[:6], good); err == nil || !strings.Contains(err.Error(), "HLFLEET ") {
			t.Errorf("without a key: %v, %v", n, err)
		}
		if got := st.dump(t); got != "" {
			t.Errorf("left %s", got)
		}
	})
}
