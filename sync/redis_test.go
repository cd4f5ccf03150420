package ratesync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// debtor is an Item with a real limit. It accepts any answer.
type debtor struct {
	*item
	key string
}

// slowLimit refills nothing within a test, so that the missing units are the debited ones.
var slowLimit = hybridlimit.TokenBucket(1, 24*time.Hour, 20_000)

func (d *debtor) Freeze(at time.Time) (wire.Op, bool) {
	op, ok := d.item.Freeze(at)
	op.Key, op.Limit = d.key, slowLimit
	return op, ok
}

func (d *debtor) Settle(a ratesync.Answer) {
	a.Level = d.account()[1] // item expects the fake's echo
	d.item.Settle(a)
}

// party is an engine over a real Runner, and its debtors.
type party struct {
	*ratesync.Engine
	t       *testing.T
	rng     *rand.Rand
	debtors []*debtor
	owed    int64
}

func newParty(t *testing.T, rdb redis.UniversalClient, rng *rand.Rand, count int, opts ...runner.Option) *party {
	t.Helper()
	calls, err := runner.New(rdb, timeout, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	br, err := circuit.New(breaker.Config{OpenFor: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	names := lua.Names{Prefix: "hl", Tags: 2}
	p := &party{t: t, rng: rng, Engine: ratesync.New(ratesync.Config{
		Caller: calls, Names: names, Process: fmt.Sprintf("%016x", rng.Uint64()), Timeout: timeout,
		Breaker:   func(int) *circuit.Breaker { return br },
		OnRefused: func(tag, ops int, err error) { t.Errorf("tag %d: %d ops refused: %v", tag, ops, err) },
	})}
	t.Cleanup(p.Close)
	for i := range count {
		name := fmt.Sprint("k", i)
		d := &debtor{item: newItem(t, name, 0), key: names.State(names.Tag(name), "api", name)}
		p.debtors = append(p.debtors, d)
	}
	return p
}

func (p *party) owe(times int) {
	names := lua.Names{Prefix: "hl", Tags: 2}
	for range times {
		d, n := p.debtors[p.rng.IntN(len(p.debtors))], 1+p.rng.Int64N(5)
		d.owe(n)
		p.owed += n
		p.Enqueue(names.Tag(d.name), d, now().Add(time.Duration(p.rng.Int64N(int64(4*time.Millisecond)))))
		breathe(p.rng)
	}
}

// breathe waits for up to a millisecond.
func breathe(rng *rand.Rand) { <-time.After(time.Duration(rng.Int64N(int64(time.Millisecond)))) }

// check compares the paid units with the units that Redis has debited, for each key.
func (p *party) check(rdb *redis.Client) {
	p.t.Helper()
	total := int64(0)
	for _, d := range p.debtors {
		pending, inflight, paid, lost := d.split()
		total += paid
		if pending+inflight+lost != 0 {
			p.t.Errorf("%s: %d pending, %d in flight, %d lost", d.name, pending, inflight, lost)
		}
		text, err := rdb.Get(context.Background(), d.key).Result()
		state, ok := wire.DecodeState(text)
		if (!ok && paid > 0) || state.Since != paid {
			p.t.Errorf("%s: %d paid, Redis has debited %d (%q, %v)", d.name, paid, state.Since, text, err)
		}
	}
	if total != p.owed {
		p.t.Errorf("%d paid, %d owed", total, p.owed)
	}
}

// lossy loses, repeats and delays calls of the library, and forwards the rest. It forwards
// loads of scripts: without an answer to a load, the calls of a second fail unsent.
func lossy(seed *rand.Rand, delay time.Duration) redistest.Script {
	rng := rand.New(rand.NewPCG(seed.Uint64(), 1)) // calls of the script are never concurrent
	return func(_ int, cmd []string) redistest.Verdict {
		if verb := strings.ToUpper(cmd[0]); verb != "EVALSHA" && verb != "FCALL" {
			return redistest.Forward()
		}
		switch rng.IntN(8) {
		case 0:
			return redistest.DropReply(redistest.ThenClose)
		case 1:
			return redistest.DropRequest(redistest.ThenClose)
		case 2:
			return redistest.Duplicate()
		case 3: // longer than an attempt: the reply comes after the attempt has ended
			return redistest.Delay(delay)
		}
		return redistest.Forward()
	}
}

// TestExactlyOnceInABubble checks that Redis debits each unit once, in virtual time, over
// a network that loses, repeats and delays messages.
func TestExactlyOnceInABubble(t *testing.T) {
	rng := testenv.Rand(t)
	var seen, failures uint64
	for range 4 {
		synctest.Test(t, func(t *testing.T) {
			bubble := redistest.NewBubble(t)
			link := bubble.Link()
			link.Latency(time.Millisecond, time.Millisecond)
			link.Script(lossy(rng, timeout+50*time.Millisecond))
			p := newParty(t, link.Client(nil), rng, 100)
			p.owe(600)
			time.Sleep(2 * time.Second)
			link.Script(nil)
			if err := p.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // late messages arrive
			p.check(bubble.Client(nil))
			st := p.Stats()
			t.Logf("%+v", st)
			seen, failures = seen+st.Seen, failures+st.Failures
		})
	}
	if seen == 0 || failures == 0 {
		t.Error("no loss was seen")
	}
}

// TestExactlyOnceOnRedis is TestExactlyOnceInABubble on a real Redis. It has what a bubble
// lacks: sockets, and scripts or functions that are flushed during the test.
func TestExactlyOnceOnRedis(t *testing.T) {
	t.Run("scripts", func(t *testing.T) { exactlyOnceOnRedis(t, false) })
	t.Run("functions", func(t *testing.T) { exactlyOnceOnRedis(t, true) })
}

func exactlyOnceOnRedis(t *testing.T, functions bool) {
	rng := testenv.Rand(t)
	server := redistest.New(t)
	direct := server.Client(t)
	flush := "SCRIPT"
	if functions {
		redistest.NeedFunctions(t, direct)
		flush = "FUNCTION"
	}
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Script(lossy(rng, 0))
	p := newParty(t, proxy.Client(t), rng, 100, runner.WithFunctions(functions))
	for range 5 {
		p.owe(60)
		redistest.Do(t, direct, flush, "FLUSH")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := p.Idle(ctx); err != nil {
		t.Fatal(err)
	}
	p.check(direct)
	t.Logf("%+v", p.Stats())
	if st := p.Stats(); st.Seen == 0 || st.Failures == 0 {
		t.Error("no loss was seen")
	}
}

// TestRefusedByRedis checks on a real Redis, over both protocols, that a permanent refusal
// is recognised. A batch older than the last one is recognised as stale.
func TestRefusedByRedis(t *testing.T) {
	server := redistest.New(t)
	for _, protocol := range []int{2, 3} {
		rdb := server.Client(t, func(o *redis.Options) { o.Protocol = protocol })
		calls, err := runner.New(rdb, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(calls.Close)
		env := wire.Envelope{Key: fmt.Sprintf("{1}env%d", protocol), Epoch: "{1}epoch", Seq: 2, TTL: time.Minute}
		op := wire.Op{Key: "{1}k", Limit: slowLimit}
		op.Owed = -1
		if _, err := calls.Batch(t.Context(), env, []wire.Op{op}); !errors.Is(err, wire.ErrRefused) {
			t.Errorf("RESP%d: a negative debt: %v", protocol, err)
		}
		op.Owed = 1
		if r, err := calls.Batch(t.Context(), env, []wire.Op{op}); err != nil || r.Stale {
			t.Errorf("RESP%d: %+v, %v", protocol, r, err)
		}
		env.Seq = 1
		if r, err := calls.Batch(t.Context(), env, []wire.Op{op}); err != nil || !r.Stale || errors.Is(err, wire.ErrRefused) {
			t.Errorf("RESP%d: %+v, %v", protocol, r, err)
		}
	}
}
