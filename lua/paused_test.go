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

// paused returns the answer of a heartbeat of process b that tells pauses.
func (st store) paused(t *testing.T, known int64, tell ...wire.Pause) wire.Beat {
	t.Helper()
	return st.pulse(t, wire.Pulse{Process: "b", Known: known, Pauses: tell})
}

// TestPausesAreTold checks that a heartbeat hears all pauses, once for each change, and that the longer of two pauses of a key
// counts.
func TestPausesAreTold(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		if b := st.paused(t, 0); b.Paused != 0 || b.Pauses != nil || st.rdb.Exists(t.Context(), fleetNames.Paused()).Val() != 0 {
			t.Errorf("without a pause: %+v", b)
		}
		first := st.paused(t, 0, wire.Pause{At: 5e6, Mark: mark(1)}, wire.Pause{At: 60e6, Mark: mark(2)})
		want := []wire.Pause{{At: first.Now + 60e6, Mark: mark(2)}, {At: first.Now + 5e6, Mark: mark(1)}}
		if first.Paused == 0 || !slices.Equal(first.Pauses, want) {
			t.Errorf("the answer to the teller: %+v, want %+v", first, want)
		}
		if b := st.paused(t, first.Paused); b.Paused != 0 || b.Pauses != nil {
			t.Errorf("to one that knows them: %+v", b)
		}
		if b := st.paused(t, 0); b.Paused != first.Paused || !slices.Equal(b.Pauses, want) {
			t.Errorf("to another: %+v", b)
		}
		if ttl := st.rdb.PTTL(t.Context(), fleetNames.Paused()).Val(); ttl < 60*time.Second || ttl > 61*time.Second {
			t.Errorf("the pauses live for %v", ttl)
		}
		next := st.paused(t, first.Paused, wire.Pause{At: 1e6, Mark: mark(2)}, wire.Pause{At: 9e6, Mark: mark(1)})
		want[1].At = next.Now + 9e6
		if next.Paused <= first.Paused || !slices.Equal(next.Pauses, want) {
			t.Errorf("the longer one counts: %+v, want %+v", next, want)
		}
		if b := st.paused(t, next.Paused, wire.Pause{At: 1e6, Mark: mark(2)}); b.Paused != 0 {
			t.Errorf("a shorter one changes nothing: %+v", b)
		}
		if b := st.paused(t, next.Paused, wire.Pause{At: 0, Mark: mark(3)}); b.Paused != 0 {
			t.Errorf("one that is over changes nothing: %+v", b)
		}
		long := st.paused(t, 0, wire.Pause{At: 999_999_999, Mark: mark(4)})
		if got := long.Pauses[0]; got != (wire.Pause{At: long.Now + wire.MaxPause.Microseconds(), Mark: mark(4)}) {
			t.Errorf("a pause of %d µs, want ten minutes", got.At-long.Now)
		}
		now := st.redisTime(t)
		st.set(t, fleetNames.Paused(), fmt.Sprintf("1 77 %d %s %d %s %d %s", now-1000, mark(1), now+5_000_000, mark(2), now+3_600_000_000, mark(3)))
		b := st.paused(t, 0)
		if want := []wire.Pause{{At: b.Now + wire.MaxPause.Microseconds(), Mark: mark(3)}, {At: now + 5_000_000, Mark: mark(2)}}; b.Paused != 77 || !slices.Equal(b.Pauses, want) {
			t.Errorf("one is over, and one ends in an hour, after a step of the clock: %+v, want %+v", b, want)
		}
	})
}

// TestPausesAreBounded checks that of too many pauses those go that end first.
func TestPausesAreBounded(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		var all []wire.Pause
		for i := range wire.MaxPaused {
			all = append(all, wire.Pause{At: 60e6 + int64(i+1)*100_000, Mark: mark(i)})
		}
		st.paused(t, 0, all...)
		b := st.paused(t, 0, wire.Pause{At: 30e6, Mark: mark(5000)}, wire.Pause{At: 500e6, Mark: mark(5001)})
		if len(b.Pauses) != wire.MaxPaused || b.Pauses[0].Mark != mark(5001) || slices.ContainsFunc(b.Pauses, func(p wire.Pause) bool { return p.Mark == mark(0) || p.Mark == mark(5000) }) {
			t.Errorf("%d pauses, the first is %+v", len(b.Pauses), b.Pauses[0])
		}
	})
}

// TestPausesTrustNothing checks that a heartbeat with unreadable pauses is refused before it changes anything, and that an unreadable
// state counts as none.
func TestPausesTrustNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		keys, good := wire.EncodePulse(filled(wire.Pulse{Process: "me"}))
		for _, bad := range []string{
			"", "x", "-1", "0 5", "0 x " + mark(1), "0 -5 " + mark(1), "0 5 " + mark(1)[1:], "0 5 " + mark(1) + "x", "0 5  " + mark(1), "0 5 " + mark(1) + " ",
			"0 1234567890 " + mark(1), strings.Repeat("1", 17), "0" + strings.Repeat(" 5 "+mark(1), wire.MaxPaused+1),
		} {
			argv := slices.Clone(good)
			argv[5] = bad
			if n, err := st.run(lua.Fleet, keys, argv); err == nil || !strings.Contains(err.Error(), "HLFLEET unreadable pauses") {
				t.Errorf("%.60q: %v, %v", bad, n, err)
			}
		}
		if got := st.dump(t); got != "" {
			t.Errorf("left %s", got)
		}
		for _, text := range []string{"", "x", "2 5", "1", "1 x", "1 5 7", "1 " + strings.Repeat("9", 17), "1 5\n", "1 5 99999999999999999 " + mark(1)} {
			st.set(t, fleetNames.Paused(), text)
			if b := st.paused(t, 0, wire.Pause{At: 1e6, Mark: mark(2)}); len(b.Pauses) != 1 || b.Pauses[0].Mark != mark(2) {
				t.Errorf("%q: %+v", text, b)
			}
		}
	})
}
