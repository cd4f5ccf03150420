package wire_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// asked is a heartbeat that counts two groups and reads one's names.
var asked = wire.Pulse{Others: []string{"x", "y"}, Read: []string{"n"}}

func TestDecodeBeatTrustsNothing(t *testing.T) {
	mark := strings.Repeat("m", 22)
	good := []any{int64(18), int64(17), int64(16), int64(9), "1 9 abc 20 def 30", "15 " + mark + " 16 " + mark, "7 19 " + mark, int64(3), int64(4), int64(5), "api login"}
	want := wire.Beat{
		Now: 18, Before: 17, Changed: 16, Version: 9, Told: true, Groups: []string{"abc", "def"},
		Wanted: []wire.Mark{{At: 15, Text: mark}, {At: 16, Text: mark}},
		Paused: 7, Pauses: []wire.Pause{{At: 19, Mark: mark}},
		Alive: 3, Others: []int64{4, 5}, Names: []string{"api login"},
	}
	if b, err := wire.DecodeBeat(good, asked); err != nil || !reflect.DeepEqual(b, want) {
		t.Fatalf("%+v, %v", b, err)
	}
	with := func(i int, v any) []any {
		out := slices.Clone(good)
		out[i] = v
		return out
	}
	if b, err := wire.DecodeBeat(with(4, ""), asked); err != nil || b.Told || b.Groups != nil {
		t.Errorf("a directory that is known: %+v, %v", b, err)
	}
	for _, raw := range []any{
		nil, "OK", int64(1),
		[]any{},
		good[:10], append(slices.Clone(good), int64(1)), with(0, int64(-1)), with(3, "2"),
		with(4, nil), with(4, int64(1)), with(4, "1 9 abc"), with(4, "2 9"), with(1, 17.5), with(9, "x"), with(10, int64(5)), with(10, strings.Repeat("a", wire.MaxNames+1)),
		with(6, nil), with(6, int64(1)), with(6, "0"), with(6, "x"), with(6, "7 19"), with(6, "7 x "+mark), with(6, "7 19 "+mark[1:]), with(6, " 7"),
		with(6, "7"+strings.Repeat(" 19 "+mark, wire.MaxPaused+1)),
		with(5, nil), with(5, int64(1)), with(5, "15"), with(5, "x "+mark), with(5, "-1 "+mark), with(5, "15 "+mark[1:]), with(5, " 15 "+mark),
		with(5, strings.Repeat("15 "+mark+" ", wire.MaxWanted)+"15 "+mark), with(5, "99999999999999999 "+mark),
		map[any]any{"a": 1},
		with(2, int64(math.MinInt64)), with(2, []any{int64(1)}), errors.New("x"),
	} {
		if b, err := wire.DecodeBeat(raw, asked); !errors.Is(err, wire.ErrReply) || !reflect.DeepEqual(b, wire.Beat{}) {
			t.Errorf("%v: %+v, %v", raw, b, err)
		}
		if f, err := wire.DecodeSwitch(raw); !errors.Is(err, wire.ErrReply) || f != (wire.Flag{}) {
			t.Errorf("%v: %+v, %v", raw, f, err)
		}
		if l, err := wire.DecodeFleetLimit(raw); !errors.Is(err, wire.ErrReply) || l != (wire.FleetLimit{}) {
			t.Errorf("%v: %+v, %v", raw, l, err)
		}
	}
}

func TestDecodeGroups(t *testing.T) {
	if v, ids, ok := wire.DecodeGroups("1 5"); v != 5 || ids != nil || !ok {
		t.Errorf("an empty directory: %d %q %v", v, ids, ok)
	}
	full := "1 5" + strings.Repeat(" "+strings.Repeat("a", 22)+" 1763000000000000", wire.MaxGroups)
	if _, ids, ok := wire.DecodeGroups(full); len(ids) != wire.MaxGroups || !ok {
		t.Errorf("a full directory: %d groups, %v", len(ids), ok)
	}
	for _, text := range []string{"", "1", "2 5", "1 x", "1 -5", "1 5 a", "1 5 a x", "1 5  6", "1 5 a 99999999999999999", "1 5 " + strings.Repeat("a", 33) + " 6", full + " a 6"} {
		if v, ids, ok := wire.DecodeGroups(text); ok || v != 0 || ids != nil {
			t.Errorf("%.40q: %d %q", text, v, ids)
		}
	}
}

func TestDecodeSettingsTrustsNothing(t *testing.T) {
	keys := []wire.Setting{{SwitchKey: "s", LimitKey: "l", KeysKey: "k"}, {SwitchKey: "t", LimitKey: "m", KeysKey: "n"}}
	good := []any{int64(18), int64(17), int64(2), int64(16), "5/s", int64(15), int64(14), int64(0), int64(0), "", int64(99), int64(0)}
	want := wire.Settings{Now: 18, Changed: 17, Of: []wire.Setting{
		{SwitchKey: "s", LimitKey: "l", KeysKey: "k", Flag: wire.Flag{Switch: 2, At: 16}, Limit: wire.FleetLimit{Text: "5/s", At: 15}, Keys: 14},
		{SwitchKey: "t", LimitKey: "m", KeysKey: "n", Limit: wire.FleetLimit{At: 18}}, // a time of the future counts as now
	}}
	if s, err := wire.DecodeSettings(good, keys); err != nil || !reflect.DeepEqual(s, want) {
		t.Fatalf("%+v, %v", s, err)
	}
	for i, bads := range map[int][]any{
		0: {"x", int64(-1)}, 1: {nil}, 2: {"x", int64(-1)}, 3: {17.5}, 4: {int64(1), "\n", "é", strings.Repeat("a", 257)}, 6: {"x", int64(-1), nil}, 10: {"x", int64(math.MaxInt64)}, 11: {"x"},
	} {
		for _, bad := range bads {
			raw := slices.Clone(good)
			raw[i] = bad
			if s, err := wire.DecodeSettings(raw, keys); !errors.Is(err, wire.ErrReply) || !reflect.DeepEqual(s, wire.Settings{}) {
				t.Errorf("%v: %+v, %v", raw, s, err)
			}
		}
	}
	for _, raw := range []any{nil, "OK", []any{}, good[:6], append(slices.Clone(good), int64(1))} {
		if s, err := wire.DecodeSettings(raw, keys); !errors.Is(err, wire.ErrReply) || !reflect.DeepEqual(s, wire.Settings{}) {
			t.Errorf("%v: %+v, %v", raw, s, err)
		}
	}
}

// The largest reply to a heartbeat, and to a message about settings, passes the guard on
// connections.
func TestLargestRepliesOfHeartbeats(t *testing.T) {
	p := wire.Pulse{Others: make([]string, wire.MaxGroups-1), Read: make([]string, wire.MaxNamesRead)}
	values := 8 + len(p.Others) + len(p.Read)
	bytes := values*24 + (wire.MaxWanted+wire.MaxPaused)*len(fmt.Sprintf(" %016d %022d", 0, 0)) + len(p.Read)*wire.MaxNames + wire.MaxGroups*len(fmt.Sprintf(" %022d %016d", 0, 0))
	if values > wire.MaxReplyValues || bytes > wire.MaxReplyBytes {
		t.Errorf("heartbeat: %d values of %d, %d bytes of %d", values, wire.MaxReplyValues, bytes, wire.MaxReplyBytes)
	}
	values = 2 + 5*wire.MaxSettings
	if bytes = values*24 + wire.MaxSettings*256; values > wire.MaxReplyValues || bytes > wire.MaxReplyBytes {
		t.Errorf("settings: %d values of %d, %d bytes of %d", values, wire.MaxReplyValues, bytes, wire.MaxReplyBytes)
	}
	if wire.MaxKeyLimitBytes+64 > wire.MaxReplyBytes {
		t.Errorf("limits of keys: %d bytes of %d", wire.MaxKeyLimitBytes, wire.MaxReplyBytes)
	}
}

// TestPartAboutPermits checks the part of a heartbeat that is about permits, both ways.
func TestPartAboutPermits(t *testing.T) {
	p := wire.Pulse{Process: "me", ID: "g", Members: "m", Member: &permits.Pulse{Losses: 1 << 40, Suspects: []string{"a", "b"}}}
	keys, argv := wire.EncodePulse(p)
	if keys[len(keys)-1] != "m" || len(argv) != 7 || argv[6] != "1000000 a b" {
		t.Errorf("%q, %q", keys, argv)
	}
	good := []any{int64(18), int64(17), int64(16), int64(9), "", "", "", int64(3), int64(77), int64(5), int64(0)}
	b, err := wire.DecodeBeat(good, p)
	if err != nil || b.Losses != 77 || !slices.Equal(b.Beats, []int64{5, 0}) || b.Alive != 3 {
		t.Fatalf("%+v, %v", b, err)
	}
	for i, bad := range map[int]any{8: int64(-1), 9: "5", 10: nil} {
		raw := slices.Clone(good)
		raw[i] = bad
		if b, err := wire.DecodeBeat(raw, p); !errors.Is(err, wire.ErrReply) {
			t.Errorf("element %d is %v: %+v, %v", i, bad, b, err)
		}
	}
	for _, raw := range [][]any{good[:7], good[:9], append(slices.Clone(good), int64(0))} {
		if b, err := wire.DecodeBeat(raw, p); !errors.Is(err, wire.ErrReply) {
			t.Errorf("%d elements: %+v, %v", len(raw), b, err)
		}
	}
	p.Member = nil
	if _, argv := wire.EncodePulse(p); len(argv) != 6 {
		t.Errorf("without the part: %q", argv)
	}
}
