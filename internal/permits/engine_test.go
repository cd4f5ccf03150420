package permits_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/test/permitstest"
)

func TestShare(t *testing.T) {
	for _, test := range []struct{ limit, n, want int64 }{{10, 3, 3}, {2, 3, 0}, {10, 0, 10}} {
		if got := permits.Share(test.limit, test.n); got != test.want {
			t.Errorf("Share(%d, %d) = %d, want %d", test.limit, test.n, got, test.want)
		}
	}
}

// TestLane checks the numbers of messages, their size, and the times at which Redis must know the last one.
func TestLane(t *testing.T) {
	var l permits.Lane[int]
	for k := range 70 {
		l.Add(k)
	}
	first, keys := l.Take("p", period, second)
	if len(keys) != permits.MaxOps || keys[0] != 0 || first.Number != 1 || first.After != 0 || first.Epoch != 0 || first.Period != 1_000_000 {
		t.Errorf("the first message is %+v with %d keys", first, len(keys))
	}
	if l.Due() {
		t.Error("a second message while one is in flight")
	}
	l.Lost()
	again, keys := l.Take("p", period, second)
	if again.Number != 2 || len(keys) != 6 {
		t.Errorf("the second message is %+v with %d keys", again, len(keys))
	}
	for _, test := range []struct {
		held  int
		at    int64
		after int64
	}{{0, 9 * second, 2}, {0, 11 * second, 0}, {1, 100 * second, 2}} {
		l := l
		l.Answered(again, permits.Answer{Epoch: 7}, test.held, second)
		l.Add(1)
		if m, _ := l.Take("p", period, second+test.at); m.After != test.after || (m.Epoch == 7) != (test.after > 0) {
			t.Errorf("%d keys held, %d s later: after %d in epoch %d", test.held, test.at/second, m.After, m.Epoch)
		}
	}
}

// TestStale checks that a message has no effect after its successor, or a second time.
func TestStale(t *testing.T) {
	m := &permitstest.Memory{}
	send := func(number, keep int64) error {
		_, err := m.Receive(1, []string{"k"}, permits.Message{
			Process: "p", Number: number, Period: 1, Ops: []permits.Op{{Limit: 9, Keep: keep, Procs: 1}},
		})
		return err
	}
	if err := send(2, 5); err != nil {
		t.Fatal(err)
	}
	for _, number := range []int64{1, 2} {
		if err := send(number, 3); !errors.Is(err, permits.ErrStale) {
			t.Errorf("message %d after message 2: %v", number, err)
		}
	}
	if got := m.Keys["k"].Total; got != 5 {
		t.Errorf("%d permits are booked, want 5", got)
	}
}

// TestNumbersAreForgotten checks that a tag forgets processes that were silent for an hour, and no other.
func TestNumbersAreForgotten(t *testing.T) {
	m := &permitstest.Memory{}
	for i, at := range []int64{1, permits.Hour, permits.Hour + 2, 2*permits.Hour + 2} {
		if _, err := m.Receive(at, nil, permits.Message{Process: fmt.Sprint(i), Number: 1, Period: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.Numbers) != 2 {
		t.Errorf("the tag remembers %v", m.Numbers)
	}
}

// TestSuspects checks that all of many holders are looked at, and first those whose heartbeat did not change.
func TestSuspects(t *testing.T) {
	m := permits.Member{Period: period}
	var holders []permits.Claim
	for i := range 100 {
		holders = append(holders, permits.Claim{Process: fmt.Sprintf("p%02d", i), Number: 1})
	}
	for now := second; now < 8*second; now += period {
		m.Suspect(holders, now)
		p := m.Beat(now)
		if len(p.Suspects) > permits.MaxSuspects {
			t.Fatalf("%d suspects", len(p.Suspects))
		}
		beats := make([]int64, len(p.Suspects))
		for i, s := range p.Suspects {
			if beats[i] = now; s == "p77" {
				beats[i] = 5
			}
		}
		m.Beaten(p, now, now, 1, beats)
	}
	dead := slices.DeleteFunc(holders, func(h permits.Claim) bool { return !m.Dead(h.Process, 0) })
	if len(dead) != 1 || dead[0].Process != "p77" {
		t.Errorf("dead: %v", dead)
	}
}

// TestOneRefusal checks that one refused call is enough to take the permits of a dead process, and that a process which lives
// keeps its own.
func TestOneRefusal(t *testing.T) {
	c := &permits.Conditions{Standing: permits.Standing{Until: 9 * second, Session: 1}, Limit: 10, Procs: 2, Period: period}
	for _, alive := range []bool{false, true} {
		m, h := permits.Member{Period: period}, permits.Holding{}
		once := permits.Waiter{N: 1, Once: true}
		h.Wait(&once)
		h.Settle(c, second)
		h.Hear(c, h.Op(c, second), permits.Reply{Scarce: true, Holders: []permits.Claim{{Process: "q", Number: 1}}}, 1, second, 0)
		if h.Denied(c, second) != &once {
			t.Fatal("the call is not refused")
		}
		m.Suspect(h.Holders(), second)
		looks := 0
		for now := second + period/2; h.Accuse(c, now, m.Dead); now += period {
			if looks++; looks > 5 {
				t.Fatal("a refusal is a reason to look for ever")
			}
			p := m.Beat(now)
			beats := make([]int64, len(p.Suspects))
			for i := range beats {
				if beats[i] = 5; alive {
					beats[i] = now
				}
			}
			m.Beaten(p, now, now, 1, beats)
		}
		if got := len(h.Op(c, second).Claims) == 1; got == alive {
			t.Errorf("alive: %v, its permits are taken: %v", alive, got)
		}
	}
}

// TestAHolderThatCameBack checks that a look that began before the last message of a holder was heard of does not take its permits
// off. The holder was silent, sent a heartbeat, and then that message: the look may have missed the heartbeat. Messages of other tags
// have other numbers. Regression: its permits were taken off while its calls ran.
func TestAHolderThatCameBack(t *testing.T) {
	c := &permits.Conditions{Standing: permits.Standing{Until: 99 * second, Session: 1}, Limit: 10, Procs: 2, Period: period}
	for _, before := range []bool{false, true} { // the message is heard of before the answer to the look
		m, h := permits.Member{Period: period}, permits.Holding{}
		refuse := func(number, now int64) {
			once := permits.Waiter{N: 1, Once: true}
			h.Wait(&once)
			h.Hear(c, h.Op(c, now), permits.Reply{Scarce: true, Holders: []permits.Claim{{Process: "q", Number: number}}}, number, now, 0)
			h.Denied(c, now)
			m.Suspect(h.Holders(), now)
			m.Suspect([]permits.Claim{{Process: "q", Number: 1000}}, now) // of another tag
		}
		look := func(sent, answered int64, meanwhile func()) (claims int) {
			p := m.Beat(sent)
			meanwhile()
			m.Beaten(p, sent, answered, 1, []int64{5}[:len(p.Suspects)])
			h.Accuse(c, answered, m.Dead)
			return len(h.Op(c, answered).Claims)
		}
		none := func() {}
		refuse(1, second)
		for now := 2 * second; now <= 3*second; now += second {
			if n := look(now, now, func() { refuse(1, now) }); n > 0 {
				t.Fatal("a holder is dead within two periods")
			}
		}
		back := func() { refuse(2, 4*second+second/10) }
		if before {
			if n := look(4*second, 4*second+second/5, back); n > 0 {
				t.Error("the permits of a holder that came back are taken off, by an answer after its message")
			}
		} else {
			back()
			if h.Accuse(c, 4*second+second/10, m.Dead); len(h.Op(c, 4*second+second/10).Claims) > 0 {
				t.Error("the permits of a holder that came back are taken off, by a look before its message")
			}
		}
		if n := look(6*second, 6*second, none); n != 1 {
			t.Errorf("the permits of a dead holder are kept: %d claims", n)
		}
	}
}

// TestMember checks when a process is a member, and when its holdings must be told again.
func TestMember(t *testing.T) {
	m := permits.Member{Period: period}
	var p permits.Pulse
	for _, test := range []struct {
		name      string
		sent, now int64 // ms
		losses    int64
		again     bool
		until     int64 // ms; 0: no member
		session   uint64
	}{
		{"the first heartbeat begins a session", 1000, 1100, 7, true, 2780, 1},
		{"the next one goes on", 2000, 2100, 7, false, 3780, 1},
		{"an older one changes nothing", 1500, 2200, 7, false, 3780, 1},
		{"a loss is heard", 3000, 3100, 8, true, 4780, 1},
		{"one that came too late begins a session", 4700, 4800, 8, true, 6480, 2},
		{"an answer that took too long is of no use", 5000, 7000, 8, false, 0, 2},
		{"the next one begins a session", 7000, 7100, 8, true, 8780, 3},
	} {
		const ms = second / 1000
		if got := m.Beaten(p, test.sent*ms, test.now*ms, test.losses, nil); got != test.again {
			t.Errorf("%s: again is %v", test.name, got)
		}
		if got := m.Standing(); got.Until != test.until*ms || got.Session != test.session {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
	if got := m.Touched(); got != 4700*second/1000 {
		t.Errorf("the process was in touch at %d ns before the cut-off, want 4.7 s", got)
	}
	m.Loss()
	lost := m.Beat(0)
	m.Missed(lost)
	if got := m.Beat(0).Losses; lost.Losses != 1 || got != 1 {
		t.Errorf("%d and then %d losses are told, want 1 and 1", lost.Losses, got)
	}
	if m.Rename(); m.Standing().Live(0) {
		t.Error("a new identity is a member before its first heartbeat")
	}
}

// TestCallsThatDoNotWait checks that a call with Once is denied by the first answer, and other calls are not.
func TestCallsThatDoNotWait(t *testing.T) {
	c := &permits.Conditions{Standing: permits.Standing{Until: 9 * second, Session: 1}, Limit: 10, Procs: 2, Period: period}
	var h permits.Holding
	once, waits, large := permits.Waiter{N: 1, Once: true}, permits.Waiter{N: 1}, permits.Waiter{N: 11}
	for _, w := range []*permits.Waiter{&once, &waits, &large} {
		if h.Acquire(c, w.N, second) != permits.Waits {
			t.Fatal("a call is admitted without permits")
		}
		h.Wait(w)
	}
	if got := h.Denied(c, second); got != &large {
		t.Errorf("a call for more permits than the limit waits")
	}
	if !h.Settle(c, second) || h.Denied(c, second) != nil {
		t.Error("a call is denied before an answer")
	}
	op := h.Op(c, second)
	h.Hear(c, op, permits.Reply{Scarce: true, Holders: []permits.Claim{{Process: "q", Number: 1}}}, 1, second, 0)
	if got := h.Denied(c, second); got != &once {
		t.Error("a call that does not wait is not denied by an answer")
	}
	if h.Denied(c, second) != nil || h.Waiting() != 1 || h.Leave(&once) || !h.Leave(&waits) {
		t.Error("a call that waits is gone")
	}
}

// TestHurry makes a call that was told an answer end, beside one that waits on.
func TestHurry(t *testing.T) {
	c := &permits.Conditions{Standing: permits.Standing{Until: 9 * second, Session: 1}, Limit: 10, Procs: 2, Period: period}
	var h permits.Holding
	first, other := permits.Waiter{N: 1}, permits.Waiter{N: 2}
	h.Wait(&first)
	h.Wait(&other)
	if !h.Settle(c, second) {
		t.Fatal("waiting calls ask for nothing")
	}
	h.Hear(c, h.Op(c, second), permits.Reply{Scarce: true}, 1, second, 0)
	if h.Denied(c, second) != nil {
		t.Error("a call that waits on is denied")
	}
	h.Hurry(&other)
	h.Hurry(&other)
	if h.Denied(c, second) != &other || h.Denied(c, second) != nil || h.Waiting() != 1 {
		t.Error("the call in a hurry waits, or the other one does not")
	}
	if c.Limit = 0; h.Denied(c, second) != &first {
		t.Error("a call above the limit waits")
	}
}

// TestIdle checks that a holding that went back is forgotten after ten seconds, but never while the process is cut off.
func TestIdle(t *testing.T) {
	h, c := inHand(t)
	h.Release(1)
	c.Ends = true
	if !h.Settle(c, second) {
		t.Fatal("permits without a call do not go back")
	}
	h.Hear(c, h.Op(c, second), permits.Reply{Free: 100}, 2, second, 0)
	for _, test := range []struct {
		at, until int64 // s
		idle      bool
	}{{13, 20, false}, {14, 20, true}, {14, 14, false}, {100, 20, false}, {100, 200, true}} {
		c.Until = test.until * second
		if got := h.Idle(c, test.at*second); got != test.idle {
			t.Errorf("at %d s, in a process that is a member until %d s: idle is %v", test.at, test.until, got)
		}
	}
}

// TestToldAgain checks that a holding is told every 30 minutes, so that it does not expire in Redis.
func TestToldAgain(t *testing.T) {
	h, c := inHand(t)
	c.Until = 3000 * second
	for now := second; now < 1900*second; now += second / 10 {
		if h.Settle(c, now) {
			if now > 100*second {
				return
			}
			op := h.Op(c, now)
			h.Hear(c, op, permits.Reply{Booked: op.Keep, Usable: op.Keep, Free: 90}, 2, now, 0.5)
		}
	}
	t.Error("a holding is not told for 30 minutes")
}
