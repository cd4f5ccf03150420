package lua_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// slow are limits that refill one unit a day or have windows of a day. No unit is refilled
// within a schedule, so the missing units are the debited ones.
var slow = []hybridlimit.Limit{
	hybridlimit.TokenBucket(1, 24*time.Hour, 20_000), hybridlimit.LeakyQueue(1, 24*time.Hour, 20_000),
	hybridlimit.FixedWindow(20_000, 24*time.Hour), hybridlimit.SlidingWindow(20_000, 24*time.Hour),
}

// network is a set of processes that sync the same keys of one tag. The network between
// them and Redis loses requests and replies, repeats them, and delivers old ones late.
// Redis forgets keys and envelopes.
type network struct {
	t     *testing.T
	st    store
	rng   *rand.Rand
	limit hybridlimit.Limit
	now   int64
	keys  []string
	nodes []*node
	late  []packet // copies still in flight

	losses  int              // losses of a state or an envelope
	execs   map[packetID]int // arrivals of a batch
	lossAt  map[packetID]int // losses at the first arrival
	slack   map[string]int64 // units that may be counted twice, by key
	first   map[packetID][]wire.Answer
	seen    int // replayed batches
	stale   int
	trouble []string // injected faults, for the message
}

// node is a process: it owes units, freezes a batch, and sends the batch until it is
// answered.
type node struct {
	id      int
	seq     int64
	pending map[string]int64
	frozen  *packet
	view    map[string]wire.View
	debited map[string]int64 // units that it knows to have taken
}

type packetID struct {
	node int
	seq  int64
}

type packet struct {
	id  packetID
	env wire.Envelope
	ops []wire.Op
}

func newNetwork(t *testing.T, st store, rng *rand.Rand) *network {
	n := &network{
		t: t, st: st, rng: rng, limit: slow[rng.IntN(len(slow))], now: start, keys: []string{"k0", "k1", "k2"},
		execs: map[packetID]int{}, lossAt: map[packetID]int{}, slack: map[string]int64{}, first: map[packetID][]wire.Answer{},
	}
	for id := range 2 + rng.IntN(3) {
		n.nodes = append(n.nodes, &node{id: id, pending: map[string]int64{}, view: map[string]wire.View{}, debited: map[string]int64{}})
	}
	return n
}

// freeze makes the node's next batch from its owed units, its asks and its views.
func (n *network) freeze(d *node, settle bool) {
	d.seq++
	p := &packet{
		id:  packetID{d.id, d.seq},
		env: wire.Envelope{Key: fmt.Sprintf("env%d", d.id), Epoch: "epoch", Seq: d.seq, TTL: time.Hour},
	}
	for _, key := range n.keys {
		op := algo.Op{Owed: d.pending[key], View: d.view[key]}
		if !settle && n.rng.IntN(2) == 0 {
			op.Asks = []int64{1 + n.rng.Int64N(3)}
			op.Demand, op.Div = n.rng.Int64N(40_000), 1+n.rng.Int64N(200)
		}
		if settle || op.Owed > 0 || len(op.Asks) > 0 {
			p.ops = append(p.ops, wire.Op{Key: key, Limit: n.limit, Op: op})
		}
		delete(d.pending, key)
	}
	d.frozen = p
}

// deliver runs a copy of a batch on Redis and returns the reply.
func (n *network) deliver(p packet) wire.Reply {
	n.now += 1 + n.rng.Int64N(50)
	r := n.st.batch(n.t, p.env, p.ops, n.now)
	n.execs[p.id]++
	switch first, again := n.first[p.id]; {
	case r.Stale:
		n.stale++
	case !again:
		n.first[p.id], n.lossAt[p.id] = r.Answers, n.losses
	case n.lossAt[p.id] == n.losses:
		n.seen++
		if !r.Seen {
			n.t.Fatalf("%v arrived again but was not marked as seen: %+v", p.id, r)
		}
		for i, a := range r.Answers {
			if f := first[i]; a.Granted != f.Granted || a.Lease != f.Lease || a.Life != f.Life {
				n.t.Fatalf("%v: replayed %+v, first %+v", p.id, a, f)
			}
		}
	default: // the batch may have been applied before the loss and again after it
		for i, op := range p.ops {
			n.slack[op.Key] += op.Owed + max(first[i].Granted+first[i].Lease, r.Answers[i].Granted+r.Answers[i].Lease)
		}
		n.first[p.id], n.lossAt[p.id] = r.Answers, n.losses
	}
	return r
}

// receive processes a reply in the node.
func (n *network) receive(d *node, r wire.Reply) {
	if r.Stale {
		n.t.Fatalf("node %d: its batch %d is stale", d.id, d.seq)
	}
	for i, op := range d.frozen.ops {
		a := r.Answers[i]
		d.debited[op.Key] += op.Owed + a.Granted + a.Lease
		d.view[op.Key] = wire.View{}
		if a.Born != 0 {
			d.view[op.Key] = wire.View{Level: a.Level, At: r.Now, Born: a.Born}
		}
	}
	d.frozen = nil
}

// step is one event of a schedule.
func (n *network) step() {
	d := n.nodes[n.rng.IntN(len(n.nodes))]
	switch n.rng.IntN(8) {
	case 0, 1, 2:
		d.pending[n.keys[n.rng.IntN(len(n.keys))]] += 1 + n.rng.Int64N(4)
	case 3, 4, 5, 6:
		if d.frozen == nil {
			n.freeze(d, false)
		}
		p := *d.frozen
		switch n.rng.IntN(6) {
		case 0: // request lost
		case 1: // reply lost
			n.deliver(p)
		case 2: // request is late, and the node gives up the attempt
			n.late = append(n.late, p)
		case 3: // repeated by the network; the copy arrives at any time
			n.late = append(n.late, p)
			n.receive(d, n.deliver(p))
		default:
			n.receive(d, n.deliver(p))
		}
	case 7:
		n.arrive()
	}
	if n.rng.IntN(40) == 0 {
		n.st.rdb.ScriptFlush(context.Background())
	}
}

// arrive delivers one late copy. No node waits for its reply.
func (n *network) arrive() {
	if len(n.late) == 0 {
		return
	}
	i := n.rng.IntN(len(n.late))
	p := n.late[i]
	n.late = append(n.late[:i], n.late[i+1:]...)
	n.deliver(p)
}

// settle delivers all late copies, and every node syncs every key, as after a change of the
// epoch.
func (n *network) settle() {
	for len(n.late) > 0 {
		n.arrive()
	}
	for range 2 {
		for _, d := range n.nodes {
			if d.frozen != nil {
				n.receive(d, n.deliver(*d.frozen))
			}
			n.freeze(d, true)
			n.receive(d, n.deliver(*d.frozen))
		}
	}
}

// used returns the units missing from a key's bucket. The refill within a schedule is far
// below a unit, so rounding removes it.
func (n *network) used(key string) int64 {
	l := algo.LimitOf(n.limit)
	level := n.st.one(n.t, key, n.limit, algo.Op{}, n.now).Level
	return (l.Full() - level + l.Unit() - 1) / l.Unit()
}

func (n *network) debited(key string) int64 {
	sum := int64(0)
	for _, d := range n.nodes {
		sum += d.debited[key]
	}
	return sum
}

// check compares Redis with the units that the nodes took. Redis never has debited less. It
// has debited more only by units that were applied before and after a loss.
func (n *network) check() {
	n.t.Helper()
	for _, key := range n.keys {
		took, used := n.debited(key), n.used(key)
		if used < took || used > took+n.slack[key] {
			n.t.Fatalf("%s: the nodes took %d units, %d are missing in Redis, at most %d may count twice; faults %v", key, took, used, n.slack[key], n.trouble)
		}
	}
}

// If Redis keeps its memory, every unit is debited exactly once, under any fault of the
// network.
func TestExactlyOnce(t *testing.T) {
	forSchedules(t, 60, 4000, func(n *network) {
		for range 80 {
			n.step()
		}
		n.settle()
		if len(n.slack) != 0 {
			n.t.Fatal("slack without a loss")
		}
		n.check()
		for _, key := range n.keys {
			s, _ := wire.DecodeState(n.st.get(n.t, key))
			if took := n.debited(key); s.Since != took {
				n.t.Fatalf("%s: Since = %d, want the %d units taken", key, s.Since, took)
			}
		}
	})
}

// Redis forgets everything, one key, or one envelope. Once every process has synced, no use
// is lost. The units counted twice are at most those that were applied before the loss and
// delivered again after it.
func TestOnceOrSafeSideAcrossLosses(t *testing.T) {
	forSchedules(t, 60, 4000, func(n *network) {
		for range 3 {
			for range 20 + n.rng.IntN(40) {
				n.step()
			}
			n.lose()
			for range n.rng.IntN(40) {
				n.step()
			}
			n.settle()
			n.check()
			// Redis knows all units now: restart the count.
			for _, key := range n.keys {
				over := n.used(key) - n.debited(key)
				n.nodes[0].debited[key] += over
			}
			clear(n.slack)
		}
	})
}

func (n *network) lose() {
	n.losses++
	switch n.rng.IntN(4) {
	case 0:
		n.trouble = append(n.trouble, "flushall")
		n.st.rdb.FlushAll(context.Background())
	case 1, 2:
		key := n.keys[n.rng.IntN(len(n.keys))]
		n.trouble = append(n.trouble, "del "+key)
		n.st.del(n.t, key)
	case 3:
		key := fmt.Sprintf("env%d", n.rng.IntN(len(n.nodes)))
		n.trouble = append(n.trouble, "del "+key)
		n.st.del(n.t, key)
	}
}

// forSchedules runs f on new networks, few of them on miniredis. It fails the test if the
// schedules had no replays or no stale batches.
func forSchedules(t *testing.T, short, long int, f func(*network)) {
	t.Helper()
	for _, tc := range []struct {
		name  string
		store func(*testing.T) store
		count int
	}{
		{"redis", func(t *testing.T) store { return realStore(t) }, plays(short, long)},
		{"functions", func(t *testing.T) store { return functionStore(t) }, plays(short/3, long/3)},
		{"miniredis", miniStore, plays(short/10, long/10)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st, rng := tc.store(t), testenv.Rand(t)
			seen, stale := 0, 0
			for range tc.count {
				st.rdb.FlushAll(context.Background())
				n := newNetwork(t, st, rng)
				f(n)
				seen, stale = seen+n.seen, stale+n.stale
			}
			t.Logf("%d schedules, %d replays, %d stale", tc.count, seen, stale)
			if seen == 0 || stale == 0 {
				t.Error("the schedules show neither replays nor stale batches")
			}
		})
	}
}

// TestLogInAnEnvelope checks that a batch with an envelope counts the units of a log once, beside those of a bucket. A log
// that was lost stays lost.
func TestLogInAnEnvelope(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		bucket := hybridlimit.TokenBucket(1, 24*time.Hour, 100)
		ops := []wire.Op{
			{Key: "b", Limit: bucket, Op: algo.Op{Owed: 3}}, {Key: "l", Limit: logged, Op: algo.Op{Owed: 2}},
		}
		for i, tc := range []struct {
			seq       int64
			lost      bool // the log was lost before
			seen      bool
			inBucket  int64
			inTheLog  int
			atMessage string
		}{
			{1, false, false, 3, 1, "first"},
			{1, false, true, 3, 1, "again"},
			{2, false, false, 6, 2, "another"},
			{2, true, true, 6, 0, "again after the log was lost"},
			{3, false, false, 9, 1, "another after that"},
		} {
			now := start + int64(i)
			if tc.lost {
				st.rdb.Del(t.Context(), "l")
			}
			r := st.batch(t, wire.Envelope{Key: "e", Epoch: "epoch", Seq: tc.seq, TTL: time.Hour}, ops, now)
			if log := st.history(t, "l", logged, now); r.Seen != tc.seen || len(log) != tc.inTheLog {
				t.Errorf("%s: %+v, log %+v", tc.atMessage, r, log)
			}
			if left := r.Answers[0].Level / algo.LimitOf(bucket).Unit(); left != 100-tc.inBucket {
				t.Errorf("%s: %d units left in the bucket, want %d", tc.atMessage, left, 100-tc.inBucket)
			}
		}
	})
}
