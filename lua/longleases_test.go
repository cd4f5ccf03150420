package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// bursts have free leases of 1, 2 and 4 seconds, with the last burst of each length and the first one of the next.
var bursts = []hybridlimit.Limit{
	hybridlimit.TokenBucket(1000, time.Second, 1000), hybridlimit.TokenBucket(1000, time.Second, 4999),
	hybridlimit.TokenBucket(1000, time.Second, 5000), hybridlimit.TokenBucket(1000, time.Second, 9999),
	hybridlimit.TokenBucket(1000, time.Second, 10_000), hybridlimit.TokenBucket(7, 3*time.Second, 100),
	{Algorithm: hybridlimit.AlgLeakyQueue, Rate: 1000, Period: time.Second, Burst: 10_000},
}

// TestTurnsEqualGo compares the script with the twin while a few processes take turns: each asks at its next poll, or a
// little earlier or later, and tells the view of its last answer.
func TestTurnsEqualGo(t *testing.T) {
	st, rng := realStore(t), testenv.Rand(t)
	long := 0
	for i, limit := range bursts {
		key, b := fmt.Sprint("turns", i), algo.BucketOf(limit)
		var s algo.State
		var views [5]wire.View
		var polls [5]int64
		now := start + rng.Int64N(algo.Generation)
		for range plays(400, 20_000) {
			p := 0
			for q := range polls {
				if polls[q] < polls[p] {
					p = q
				}
			}
			if now = max(now, polls[p]); rng.IntN(4) == 0 {
				p, now = rng.IntN(len(polls)), now+rng.Int64N(100_000)
			}
			cost := 1 + rng.Int64N(3)
			if rng.IntN(20) == 0 {
				cost = 1 + rng.Int64N(limit.BurstSize())
			}
			op := algo.Op{Asks: []int64{cost}, Demand: rng.Int64N(1000 * limit.BurstSize() >> rng.IntN(8)), Div: 2 * int64(len(polls)), View: views[p], Queued: rng.IntN(3) == 0, MaxLife: max(0, rng.Int64N(10)-5)}
			next, want, dirty := b.Apply(s, op, now)
			got := st.one(t, key, limit, op, now)
			if got != want {
				t.Fatalf("%v, state %+v\nop    %+v\nredis %+v\ngo    %+v", limit, s, op, got, want)
			}
			if dirty {
				s = next
			}
			if text := st.get(t, key); dirty && text != lua.EncodeState(s) {
				t.Fatalf("%v, op %+v: state %q, want %q", limit, op, text, lua.EncodeState(s))
			}
			if views[p] = (wire.View{}); rng.IntN(4) > 0 {
				views[p] = wire.View{Level: got.Level, At: now, Born: got.Born}
			}
			if polls[p] = now + got.Retry; got.Lease > 0 && got.Gen == 0 && got.Life > algo.Generation {
				long++
			}
		}
	}
	if long < 100 {
		t.Errorf("%d free leases of more than a second", long)
	}
}

// TestEnvelopesHaveLongLives checks that the short way of a batch stores in its envelope how long a grant lives.
func TestEnvelopesHaveLongLives(t *testing.T) {
	st := realStore(t)
	d := newDiffer(t, st, bursts)
	for i, limit := range bursts[:len(bursts)-1] {
		b := algo.BucketOf(limit)
		for j, of := range []int64{50, 10, 5, 2, 1} { // a fiftieth of the burst is used, and so on
			key := fmt.Sprintf("%d-%d", i, j)
			next, _, _ := b.Apply(algo.State{}, algo.Op{Owed: limit.BurstSize()/of - 1}, start)
			if next.Born == 0 {
				continue
			}
			for _, op := range []algo.Op{{Owed: 1, Div: 2}, {Asks: []int64{1}}} {
				st.set(t, key, lua.EncodeState(next))
				_, want, _ := b.Apply(next, op, start)
				d.now = start
				d.payBatch([]wire.Op{{Key: key, Limit: limit, Op: op}})
				var seq, stamp, granted, lease, life int64
				if _, err := fmt.Sscanf(st.get(t, "@env"), "1e%d %d %d %d %d", &seq, &stamp, &granted, &lease, &life); err != nil {
					t.Fatalf("envelope %q: %v", st.get(t, "@env"), err)
				}
				if granted != want.Granted || lease != want.Lease || life != want.Life {
					t.Errorf("%v, op %+v: envelope has %d granted, %d leased, life %d; want %+v", limit, op, granted, lease, life, want)
				}
			}
		}
	}
	t.Log(d.saw)
}

// TestGenerationsEqualGo compares the script with the twin while processes with leases of different lives settle, renew
// and return them: generations grow beside other leases, and shrink when the ledger is empty.
func TestGenerationsEqualGo(t *testing.T) {
	st, rng := realStore(t), testenv.Rand(t)
	b, limit := algo.BucketOf(bursts[4]), bursts[4]
	var s algo.State
	var held [3]algo.Answer
	now, grown, shrunk, settled, refused := start, 0, 0, 0, 0
	for range plays(1200, 20_000) {
		now += rng.Int64N([]int64{1000, 1_000_000, 5_000_000}[rng.IntN(3)])
		p := rng.IntN(len(held))
		h := held[p]
		op := algo.Op{Demand: 1000 * rng.Int64N(40), Div: 2 * int64(len(held)), MaxLife: rng.Int64N(3)}
		if h.Gen != 0 {
			op.Gen, op.Had, op.View = h.Gen, h.Lease, wire.View{Level: h.Level, At: now, Born: h.Born}
			op.Keep = rng.Int64N(op.Had+1) * rng.Int64N(2)
			op.Back = rng.Int64N(op.Had - op.Keep + 1)
		}
		next, want, dirty := b.Apply(s, op, now)
		got := st.one(t, "generations", limit, op, now)
		if got != want {
			t.Fatalf("state %+v\nop    %+v\nredis %+v\ngo    %+v", s, op, got, want)
		}
		switch out := s.Out != [2]int64{}; {
		case out && next.Span > s.Span && op.Keep == 0:
			grown++
		case next.Out != [2]int64{} && next.Span < s.Span:
			shrunk++
		}
		if dirty {
			s = next
		}
		if text := st.get(t, "generations"); dirty && text != lua.EncodeState(s) {
			t.Fatalf("op %+v: state %q, want %q", op, text, lua.EncodeState(s))
		}
		if op.Back > 0 && got.Refused {
			refused++
		} else if op.Back > 0 {
			settled++
		}
		if held[p] = got; got.Gen != 0 {
			held[p].Lease += op.Keep
		}
	}
	if t.Logf("%d grown, %d shrunk, %d settled, %d refused", grown, shrunk, settled, refused); min(grown, shrunk, settled, refused) < 3 {
		t.Error("too few of a kind")
	}
}
