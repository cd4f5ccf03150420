package redistest

import (
	"testing"
	"time"
)

func TestVerdictString(t *testing.T) {
	for _, tt := range []struct {
		v    Verdict
		want string
	}{
		{Verdict{}, "forward"},
		{Forward(), "forward"},
		{DropRequest(ThenClose), "drop request, close"},
		{DropReply(ThenHang), "drop reply, hang"},
		{Duplicate(), "duplicate"},
		{Delay(time.Millisecond), "forward, request +1ms"},
		{DelayReply(time.Second), "forward, reply +1s"},
		{DropReply(ThenClose).Late(1, 2), "drop reply, close, request +1ns, reply +2ns"},
		{Delay(1).Late(2, 3), "forward, request +3ns, reply +3ns"},
	} {
		if got := tt.v.String(); got != tt.want {
			t.Errorf("%#v prints %q, want %q", tt.v, got, tt.want)
		}
	}
}

func TestOnNth(t *testing.T) {
	script := OnNth("incr", 1, Duplicate())
	var got []Verdict
	for n, cmd := range []string{"HELLO", "INCR", "GET", "INCR", "incr"} {
		got = append(got, script(n, []string{cmd, "k"}))
	}
	for i, v := range got {
		if want := i == 3; (v == Duplicate()) != want {
			t.Errorf("request %d: %v", i, v)
		}
	}
}

func TestOnEvery(t *testing.T) {
	script := OnEvery("INCR", Duplicate())
	for _, cmd := range []string{"INCR", "incr", "GET"} {
		if v, want := script(0, []string{cmd}), cmd != "GET"; (v == Duplicate()) != want {
			t.Errorf("%s: %v", cmd, v)
		}
	}
}
