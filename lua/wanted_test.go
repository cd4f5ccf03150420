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

// mark returns the i-th of different marks.
func mark(i int) string { return fleetNames.Digest("api", fmt.Sprint(i)) }

// texts returns the marks that a heartbeat of process b hears.
func (st store) texts(t *testing.T, tell ...string) (texts []string) {
	t.Helper()
	for _, m := range st.pulse(t, wire.Pulse{Process: "b", Marks: tell}).Wanted {
		texts = append(texts, m.Text)
	}
	return texts
}

// TestWantedMarksAreTold checks that each heartbeat hears the marks of the last three seconds, the newest last, and that a mark which
// is told again within a second keeps its time.
func TestWantedMarksAreTold(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		if got := st.texts(t); got != nil || st.rdb.Exists(t.Context(), fleetNames.Wanted()).Val() != 0 {
			t.Errorf("without a mark: %q", got)
		}
		if got := st.texts(t, mark(1), mark(2)); !slices.Equal(got, []string{mark(1), mark(2)}) {
			t.Errorf("the answer to the teller: %q", got)
		}
		first := st.pulse(t, wire.Pulse{Process: "c", Marks: []string{mark(2), mark(3)}}).Wanted
		if len(first) != 3 || first[1].Text != mark(2) || first[1].At != first[0].At || first[2].At < first[0].At {
			t.Errorf("told again at once: %+v", first)
		}
		if ttl := st.rdb.PTTL(t.Context(), fleetNames.Wanted()).Val(); ttl <= 0 || ttl > 10*time.Second {
			t.Errorf("the marks live for %v", ttl)
		}
		now := st.redisTime(t)
		st.set(t, fleetNames.Wanted(), fmt.Sprintf("1 %d %s %d %s %d %s %d %s", now-3_100_000, mark(1), now-1_500_000, mark(2), now-900_000, mark(3), now+60e6, mark(4)))
		again := st.pulse(t, wire.Pulse{Process: "c", Marks: []string{mark(2), mark(3)}}).Wanted
		if len(again) != 2 || again[0] != (wire.Mark{At: now - 900_000, Text: mark(3)}) || again[1].Text != mark(2) || again[1].At < now {
			t.Errorf("after 1.5 s a mark is new, and one is over after 3 s, or of the future: %+v", again)
		}
	})
}

// TestWantedMarksAreBounded checks that the oldest marks go.
func TestWantedMarksAreBounded(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		var all []string
		for i := range wire.MaxWanted + 30 {
			all = append(all, mark(i))
		}
		st.texts(t, all[:60]...)
		if got := st.texts(t, all[60:]...); !slices.Equal(got, all[30:]) {
			t.Errorf("%d marks, want the last %d", len(got), wire.MaxWanted)
		}
	})
}

// TestWantedMarksTrustNothing checks that a heartbeat with unreadable marks is refused before it changes anything, and that an
// unreadable state counts as none.
func TestWantedMarksTrustNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		keys, good := wire.EncodePulse(filled(wire.Pulse{Process: "me"}))
		for _, bad := range []string{
			"x", mark(1)[1:], mark(1) + "x", mark(1) + "," + mark(2), mark(1) + "\n", strings.Repeat("é", 11), mark(1)[1:] + ":",
			strings.Repeat(mark(1)+" ", wire.MaxWanted+1),
		} {
			argv := slices.Clone(good)
			argv[4] = bad
			if n, err := st.run(lua.Fleet, keys, argv); err == nil || !strings.Contains(err.Error(), "HLFLEET unreadable marks") {
				t.Errorf("%.60q: %v, %v", bad, n, err)
			}
		}
		if got := st.dump(t); got != "" {
			t.Errorf("left %s", got)
		}
		now := st.redisTime(t)
		for _, text := range []string{
			"", "x", "1", "1 ", "2 5 " + mark(1), fmt.Sprintf("1 %d x", now), fmt.Sprintf("1 x %s", mark(1)), fmt.Sprintf("1 %d %s\n", now, mark(1)),
			fmt.Sprintf("1 99999999999999999 %s", mark(1)), fmt.Sprintf("1 %d %s:", now, mark(1)),
		} {
			st.set(t, fleetNames.Wanted(), text)
			if got := st.texts(t, mark(2)); !slices.Equal(got, []string{mark(2)}) {
				t.Errorf("%.60q: %q", text, got)
			}
		}
	})
}
