package wire_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// asks returns plain ops on the key "k", one for each list.
func asks(limit hybridlimit.Limit, lists ...[]int64) []wire.Op {
	ops := make([]wire.Op, len(lists))
	for i, list := range lists {
		ops[i] = wire.Op{Key: "k", Limit: limit, Op: algo.Op{Asks: list}}
	}
	return ops
}

// The answers to plain asks follow from the state after them. The time start is
// 643706cbd3000 in hexadecimal.
func TestDecodePlain(t *testing.T) {
	bucket, queue := hybridlimit.TokenBucket(100, time.Second, 200), hybridlimit.LeakyQueue(10, time.Second, 5)
	fixed, sliding := hybridlimit.FixedWindow(10, time.Second), hybridlimit.SlidingWindow(10, time.Second)
	thirds := hybridlimit.TokenBucket(3, time.Second, 5)
	at := algo.State{Kind: algo.KindBucket, Unit: 10_000, Refill: 1, Last: start, Born: start - 255}
	with := func(s algo.State, change func(*algo.State)) algo.State {
		change(&s)
		return s
	}
	window := algo.State{Kind: algo.KindFixed, Period: 1_000_000, Win: start / 1_000_000, Prev: 9, Born: start - 255}
	for _, tc := range []struct {
		name   string
		text   string
		ops    []wire.Op
		before algo.State
	}{
		{"granted", "1b2710 186a0 ff 643706cbd2f01 7", asks(bucket, []int64{3}), with(at, func(s *algo.State) { s.Level = 130_000 })},
		{"refused", "00 186a0 643706cbd2f01 1763000000 0", asks(bucket, []int64{11}), with(at, func(s *algo.State) { s.Level = 100_000 })},
		{"without a state", "1b2710 1e5d70 0 643706cbd3000 1", asks(bucket, []int64{1}), algo.State{}},
		{"refused without a state", "00 1e8480 0 1763000000 0", asks(bucket, []int64{201}), algo.State{}},
		{"several", "05 4e20 643706cbd2f01 1763000000 0", asks(bucket, []int64{3}, []int64{9, 2}), with(at, func(s *algo.State) { s.Level = 70_000 })},
		{"several without a state", "01 1e5d70 0 1763000000 0", asks(bucket, []int64{201}, []int64{1}), algo.State{}},
		{"a refill of three", "1bf4240 3d0900 ff 643706cbd2f01 7 r3", asks(thirds, []int64{1}), with(at, func(s *algo.State) { s.Unit, s.Refill, s.Level = 1_000_000, 3, 5_000_000 })},
		{"queue", "1q186a0 -493e0 ff 643706cbd2f01 7", asks(queue, []int64{1}), with(at, func(s *algo.State) { s.Kind, s.Unit, s.Level = algo.KindQueue, 100_000, -200_000 })},
		{"full queue", "00 1 643706cbd2f01 1763000000 0", asks(queue, []int64{1}), with(at, func(s *algo.State) { s.Kind, s.Unit, s.Level = algo.KindQueue, 100_000, -499_999 })},
		{"fixed", "1ff4240 69153ec0 4 9 643706cbd2f01 7 1763000000 0", asks(fixed, []int64{3}), with(window, func(s *algo.State) { s.Cur = 1 })},
		{"fixed, refused", "01 9 2 643706cbd2f01 1763000000 0", asks(fixed, []int64{1}, []int64{5}), with(window, func(s *algo.State) { s.Cur, s.Prev = 8, 2 })},
		{"fixed, refused without a state", "00 0 0 0 1763000000 0", asks(fixed, []int64{11}), algo.State{}},
		{"sliding", "1sf4240 69153ec0 1 9 643706cbd2f01 7 1763000000 0", asks(sliding, []int64{1}), with(window, func(s *algo.State) { s.Kind = algo.KindSliding })},
	} {
		now := start
		reply, err := wire.DecodeReply(tc.text, tc.ops)
		if err != nil || reply.Now != now || len(reply.Answers) != len(tc.ops) {
			t.Errorf("%s: %+v, %v", tc.name, reply, err)
			continue
		}
		state := tc.before
		for i, op := range tc.ops {
			next, want, changed := algo.LimitOf(op.Limit).Apply(state, op.Op, now)
			if changed {
				state = next
			}
			if reply.Answers[i] != want {
				t.Errorf("%s, op %d: %+v, want %+v", tc.name, i, reply.Answers[i], want)
			}
		}
		if err := reply.Check(wire.Envelope{}, tc.ops); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}

	one, two := asks(bucket, []int64{1}), append(asks(bucket, []int64{1}), wire.Op{Key: "other", Limit: bucket, Op: algo.Op{Asks: []int64{1}}})
	good := "1b2710 186a0 ff 643706cbd2f01 7"
	if _, err := wire.DecodeReply([]any{good, good}, two); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct {
		raw any
		ops []wire.Op
	}{
		"no text": {"", one}, "OK": {"OK", one}, "another kind": {"1q186a0 -493e0 ff 643706cbd2f01 7", one},
		"another unit": {"1b2711 186a0 ff 643706cbd2f01 7", one}, "another refill": {good + " r3", one}, "an empty ledger": {good + " o0", one}, "the ledger the wrong way round": {good + " p3 o3", one}, "a next poll": {good + " t3", one},
		"short": {"1b2710 186a0 ff 643706cbd2f01", one}, "words": {"1b2710 186a0 ff 643706cbd2f01 x", one}, "negative": {"1b2710 -5 ff 643706cbd2f01 7", one},
		"more than full": {"1b2710 1e8480 ff 643706cbd2f01 7", one}, "not born": {"1b2710 186a0 ff 0 7", one}, "huge": {"1b2710 186a0 20000000000000 643706cbd2f01 7", one},
		"refused what fits": {"00 186a0 643706cbd2f01 1763000000 0", one}, "granted in part": {"01 186a0 643706cbd2f01 1763000000 0", asks(bucket, []int64{5})},
		"refused without a state, not full": {"00 186a0 0 1763000000 0", asks(bucket, []int64{201})}, "more than asked": {"02 186a0 643706cbd2f01 1763000000 0", one},
		"granted by the form of a refusal": {"01 186a0 643706cbd2f01 1763000000 0", one}, "no time": {"00 1 643706cbd2f01 0 0", one},
		"a long second": {"00 1 643706cbd2f01 1763000000 1000000", one}, "refused and more": {"00 1 643706cbd2f01 1763000000 0 1", one}, "late": {"00 1 643706cbd2f01 9999999999999 0", one},
		"a text for two keys": {good, two}, "a list too long": {[]any{good, good}, one}, "two times": {[]any{good, "1b2710 186a0 100 643706cbd2f01 7"}, two},
		"a number in the list": {[]any{good, int64(1)}, two}, "for other ops": {good, []wire.Op{{Key: "k", Limit: bucket, Op: algo.Op{Owed: 1, Asks: []int64{1}}}}},
		"the order of plain asks, for other ops": {ints(2, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), make([]wire.Op, 1)},
		"another window":                         {"1ff4240 69153ec1 4 9 643706cbd2f01 7 1763000000 0", asks(fixed, []int64{3})},
		"a window above its rate":                {"1ff4240 69153ec0 b 9 643706cbd2f01 7 1763000000 0", asks(fixed, []int64{3})},
		"a window after one above its rate":      {"1ff4240 69153ec0 4 b 643706cbd2f01 7 1763000000 0", asks(fixed, []int64{3})},
		"a window with too few":                  {"1ff4240 69153ec0 2 9 643706cbd2f01 7 1763000000 0", asks(fixed, []int64{3})},
		"a window without a time":                {"1ff4240 69153ec0 4 9 643706cbd2f01 7", asks(fixed, []int64{3})},
		"a window without a state, used":         {"00 1 0 0 1763000000 0", asks(fixed, []int64{11})},
		"a queue below its depth":                {"1q186a0 -7a121 ff 643706cbd2f01 7", asks(queue, []int64{1})},
	} {
		if got, err := wire.DecodeReply(tc.raw, tc.ops); !errors.Is(err, wire.ErrReply) || len(got.Answers) > 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// The answers of the other way of the script come in the order of the texts.
func TestDecodePlainOrder(t *testing.T) {
	limit := hybridlimit.TokenBucket(100, time.Second, 200)
	var ops []wire.Op
	for _, key := range []string{"a", "b", "a", "c", "b"} {
		ops = append(ops, wire.Op{Key: key, Limit: limit, Op: algo.Op{Asks: []int64{1}}})
	}
	raw := ints(2, 0, 0, 9)
	for i := range int64(5) {
		raw = append(raw, ints(1, 0, 0, i, 0, 1, 5, 0, 0, 0)...)
	}
	reply, err := wire.DecodeReply(raw, ops)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, a := range reply.Answers {
		got += fmt.Sprint(a.Level)
	}
	if got != "02143" {
		t.Errorf("the answers are in the order %s", got)
	}
}

// FuzzDecodePlain checks that each text of a plain ask is an error or decodes to an
// answer that grants at most the units asked for, within the limit.
func FuzzDecodePlain(f *testing.F) {
	f.Add("1b2710 186a0 ff 643706cbd2f01 7", uint8(0), int64(3), int64(1))
	f.Add("05 4e20 643706cbd2f01 1763000000 0", uint8(0), int64(9), int64(5))
	f.Add("1q186a0 -493e0 ff 643706cbd2f01 7", uint8(1), int64(1), int64(1))
	f.Add("1ff4240 69153ec0 4 9 643706cbd2f01 7 1763000000 0", uint8(2), int64(1), int64(1))
	f.Add("1sf4240 69153ec0 1 9 643706cbd2f01 7 1763000000 0", uint8(3), int64(1), int64(0))
	f.Add("1bf4240 3d0900 ff 643706cbd2f01 7 r3", uint8(4), int64(1), int64(0))
	limits := []hybridlimit.Limit{
		hybridlimit.TokenBucket(100, time.Second, 200), hybridlimit.LeakyQueue(10, time.Second, 5), hybridlimit.FixedWindow(10, time.Second),
		hybridlimit.SlidingWindow(10, time.Second), hybridlimit.TokenBucket(3, time.Second, 5), hybridlimit.SlidingWindow(1_000_000, 24*time.Hour),
	}
	f.Fuzz(func(t *testing.T, text string, kind uint8, first, second int64) {
		limit := limits[int(kind)%len(limits)]
		ops := asks(limit, []int64{first}, []int64{second})
		if second < 1 {
			ops = ops[:1]
		}
		r, err := wire.DecodeReply(text, ops)
		if err != nil {
			if !errors.Is(err, wire.ErrReply) || len(r.Answers) > 0 {
				t.Errorf("%q: %+v, %v", text, r, err)
			}
			return
		}
		granted := int64(0)
		for i, a := range r.Answers {
			granted += a.Granted
			if a.Granted != 0 && a.Granted != ops[i].Asks[0] || a.Lease != 0 || a.Retry < 0 || a.Delay < 0 || a.Born < 0 || a.Level < -algo.LimitOf(limit).Full() {
				t.Errorf("%q: %+v", text, a)
			}
		}
		if granted > limit.BurstSize() || r.Now < 1 || r.Now > 1<<53 {
			t.Errorf("%q: %d granted of %v, at %d", text, granted, limit, r.Now)
		}
	})
}
