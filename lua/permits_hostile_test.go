package lua_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// hostilePermits is a key of five permits: "a" and "b" hold two each.
type hostilePermits struct {
	st      store
	now     int64
	numbers map[string]int64
}

func newHostilePermits(t *testing.T, st store) *hostilePermits {
	t.Helper()
	h := &hostilePermits{st: st, now: start, numbers: map[string]int64{}}
	st.del(t, heldKeys(1)[0], memoryKey)
	h.send(t, "a", permits.Op{Keep: 2})
	h.send(t, "b", permits.Op{Keep: 2})
	h.now += 5 * permits.Second // Redis has learnt
	return h
}

func (h *hostilePermits) send(t *testing.T, process string, op permits.Op) permits.Reply {
	t.Helper()
	op.Limit, op.Procs = 5, 1
	h.numbers[process]++
	h.now++
	a, err := h.st.permits(t, h.now, heldKeys(1), permits.Message{Process: process, Number: h.numbers[process], Period: 1_000_000, Ops: []permits.Op{op}})
	if err != nil {
		t.Fatal(err)
	}
	return a.Replies[0]
}

// TestPermitsOfAnotherHand changes a key behind the library. A refusal finds it, and Redis learns: the limit is not open for longer than until
// the next refusal, and no permit is lost for good. Regression: a total that another hand had lowered admitted more calls than the
// limit as long as the key was in use, and one that it had raised denied all calls as long.
func TestPermitsOfAnotherHand(t *testing.T) {
	key, ctx := heldKeys(1)[0], context.Background()
	onEachStore(t, func(t *testing.T, st store) {
		for name, fields := range map[string][]any{
			"total 0":              {"", "1 0 0 0"},
			"total 4 of 5":         {"", "1 5 0 0"},
			"total too large":      {"", "1 2000000000000000 0 0"},
			"total 2^53":           {"", "1 9007199254740992 0 0"},
			"total not a number":   {"", "1 nan 0 0"},
			"holding lost":         {"b", "words"},
			"holding negative":     {"b", "-2 1"},
			"holding huge":         {"x", "9007199254740992 1"},
			"holding of 2^51":      {"x", "2251799813685248 1"},
			"holdings above 2^51":  {"x", "2251799813685248 1", "y", "2251799813685248 1"},
			"holder with a space":  {"x y", "2 1"},
			"holder with a line":   {"x\n", "2 1"},
			"holder of 1000 bytes": {strings.Repeat("x", 1000), "2 1"},
			"starving digits":      {"!", "7 1 1"},
			"starving for ever":    {"!", "x 1 9007199254740991"},
			"learns for ever":      {"", "1 4 9007199254740991 9007199254740991"},
		} {
			h := newHostilePermits(t, st)
			if err := st.rdb.HSet(ctx, key, fields...).Err(); err != nil {
				t.Fatal(err)
			}
			for range 3 { // c takes all that is left, and is refused
				h.send(t, "c", permits.Op{Want: 5, First: 1})
				h.now += permits.Second / 2
			}
			h.send(t, "c", permits.Op{})
			for range 2 { // the fleet tells its holdings, as after a loss
				h.send(t, "a", permits.Op{Keep: 2, Had: 2})
				h.send(t, "b", permits.Op{Keep: 2, Had: 2})
			}
			h.send(t, "x", permits.Op{}) // a dead process is taken off
			h.now += 181 * permits.Second
			if r := h.send(t, "c", permits.Op{Want: 2, First: 1}); r.Booked != 1 || r.Free != 0 || r.Learns != 0 {
				t.Errorf("%s: %+v, want the one permit that is free", name, r)
			}
			if ttl := st.ttl(t, key); ttl <= 0 {
				t.Errorf("%s: TTL %v", name, ttl)
			}
		}
	})
}

// TestPermitsOfManyFields fills the key, and the memory, with fields of another hand. The script replaces both, and never reads them.
// Regression: each refusal read a hash of a million fields, which kept Redis busy for a second.
func TestPermitsOfManyFields(t *testing.T) {
	st, key := realStore(t), heldKeys(1)[0]
	fill := func(key, value string) {
		t.Helper()
		fields := make([]any, 0, 2*70_000)
		for i := range 70_000 {
			fields = append(fields, fmt.Sprint("x", i), value)
		}
		if err := st.rdb.HSet(context.Background(), key, fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	h := newHostilePermits(t, st)
	fill(key, "1 1")
	if got := innerCalls(t, st, func() {
		if r := h.send(t, "c", permits.Op{Want: 5, First: 5}); r.Booked != 0 || !r.Lost || r.Learns == 0 || r.Holders != nil {
			t.Errorf("%+v", r)
		}
	}); strings.Contains(got, "hgetall") {
		t.Errorf("a refusal runs %s", got)
	}
	if n := st.rdb.HLen(context.Background(), key).Val(); n > 2 {
		t.Errorf("%d fields are left", n)
	}
	fill(memoryKey, fmt.Sprintf("1 %d", start))
	h.now += permits.Hour
	h.send(t, "c", permits.Op{})
	if n := st.rdb.HLen(context.Background(), memoryKey).Val(); n > 2 {
		t.Errorf("%d fields of the memory are left", n)
	}
	m := permits.Message{Process: "a", Number: 9, After: 1, Epoch: start + 1, Period: 1_000_000, Ops: []permits.Op{{Limit: 5, Procs: 1}}}
	if a, err := st.permits(t, h.now, heldKeys(1), m); err != nil || !a.Replies[0].Lost {
		t.Errorf("a process whose number is gone: %+v, %v", a, err)
	}
}

// TestMemoryOfAnotherHand checks that times of the far future do not keep numbers for ever.
func TestMemoryOfAnotherHand(t *testing.T) {
	ctx := context.Background()
	onEachStore(t, func(t *testing.T, st store) {
		h := newHostilePermits(t, st)
		if err := st.rdb.HSet(ctx, memoryKey, "", fmt.Sprintf("1 %d 9007199254740991 9007199254740991", start+1), "x", "5 9007199254740991").Err(); err != nil {
			t.Fatal(err)
		}
		h.send(t, "c", permits.Op{})
		h.now += permits.Hour + permits.Second
		if r := h.send(t, "c", permits.Op{Want: 1, First: 1}); r.Booked != 1 {
			t.Errorf("%+v", r)
		}
		if got := st.rdb.HKeys(ctx, memoryKey).Val(); len(got) != 2 {
			t.Errorf("the memory has %q, want the head and c", got)
		}
	})
}

// TestMembersOfAnotherHand writes scores that no heartbeat has.
func TestMembersOfAnotherHand(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		now := float64(st.redisTime(t))
		losses := st.member(t, "me", 0).Losses
		for _, score := range []float64{-5, -1e300, math.Inf(-1), math.Inf(1), 1e300, now + float64(time.Hour.Microseconds()), 0} {
			st.rdb.ZAdd(context.Background(), membersKey, redis.Z{Score: score, Member: "x"})
			if b := st.member(t, "me", 0, "x", "me"); b.Beats[0] != 0 || b.Beats[1] != b.Now || b.Losses != losses {
				t.Errorf("a score of %v: %+v", score, b)
			}
		}
		for _, score := range []float64{math.Inf(-1), math.Inf(1), 0.5} {
			st.rdb.ZAdd(context.Background(), membersKey, redis.Z{Score: score, Member: ""})
			if b := st.member(t, "me", 0); b.Losses < int64(now) || b.Losses > st.redisTime(t) {
				t.Errorf("losses of %v: %+v", score, b)
			}
		}
	})
}
