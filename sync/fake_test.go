package ratesync_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

const (
	rtt     = 2 * time.Millisecond
	timeout = 250 * time.Millisecond
)

var errLost = errors.New("fake: connection reset")

// attempt is one call of Batch.
type attempt struct {
	n   int // from 0, over all tags
	at  time.Time
	env wire.Envelope
	ops []wire.Op
}

// String returns the attempt as a line: "#3 at 05.002000: hl:v2:{0}:@env:p 2, 7 ops".
func (a attempt) String() string {
	return fmt.Sprintf("#%d at %s: %s %d, %d ops", a.n, a.at.Format("05.000000"), a.env.Key, a.env.Seq, len(a.ops))
}

// owed returns the owed units of the ops, by key.
func (a attempt) owed() map[string]int64 {
	m := map[string]int64{}
	for _, op := range a.ops {
		m[op.Key] += op.Owed
	}
	return m
}

// fakeRedis is a Caller that answers by script. In every test it checks four rules: a tag
// has one batch with an envelope in flight, sequences have no gap, a sequence always has the same content,
// and a batch without an envelope only asks.
type fakeRedis struct {
	t *testing.T
	// script answers an attempt. Nil: applied.
	script func(ctx context.Context, a attempt) (wire.Reply, error)
	// empty permits a batch without ops. A lane sends these to test whether Redis
	// still refuses.
	empty bool

	mu       sync.Mutex
	attempts []attempt
	flying   map[string]bool
	last     map[string]wire.Envelope
	content  map[string][]wire.Op
}

func (f *fakeRedis) Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error) {
	a := f.begin(env, ops)
	defer f.end(env)
	if f.script != nil {
		return f.script(ctx, a)
	}
	return applied(ctx, a)
}

func (f *fakeRedis) begin(env wire.Envelope, ops []wire.Op) attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flying == nil {
		f.flying, f.last, f.content = map[string]bool{}, map[string]wire.Envelope{}, map[string][]wire.Op{}
	}
	if env.Seq == 0 {
		if i := slices.IndexFunc(ops, func(op wire.Op) bool { return !op.AsksByView() }); i >= 0 || len(ops) == 0 {
			f.t.Errorf("a batch has no envelope, and does more than ask: %+v", ops)
		}
		a := attempt{n: len(f.attempts), at: time.Now(), ops: slices.Clone(ops)}
		f.attempts = append(f.attempts, a)
		return a
	}
	if f.flying[env.Key] {
		f.t.Errorf("two batches of %s in flight", env.Key)
	}
	f.flying[env.Key] = true
	switch last := f.last[env.Key]; env.Seq {
	case last.Seq + 1:
		f.last[env.Key], f.content[env.Key] = env, slices.Clone(ops)
	case last.Seq:
		if env != last || !reflect.DeepEqual(ops, f.content[env.Key]) {
			f.t.Errorf("%s: sequence %d was %+v, now %+v", env.Key, env.Seq, f.content[env.Key], ops)
		}
	default:
		f.t.Errorf("%s: sequence %d after %d", env.Key, env.Seq, last.Seq)
	}
	if len(ops) == 0 && !f.empty || len(ops) > wire.MaxOps {
		f.t.Errorf("a batch has %d ops", len(ops))
	}
	a := attempt{n: len(f.attempts), at: time.Now(), env: env, ops: f.content[env.Key]}
	f.attempts = append(f.attempts, a)
	return a
}

func (f *fakeRedis) end(env wire.Envelope) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flying[env.Key] = false
}

func (f *fakeRedis) all() []attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.attempts)
}

// applied answers after rtt, unless ctx ends first.
func applied(ctx context.Context, a attempt) (wire.Reply, error) {
	if err := wait(ctx, rtt); err != nil {
		return wire.Reply{}, err
	}
	return replyTo(a), nil
}

func replyTo(a attempt) wire.Reply {
	r := wire.Reply{Now: time.Now().UnixMicro(), Answers: make([]wire.Answer, len(a.ops))}
	for i, op := range a.ops {
		r.Answers[i] = wire.Answer{Granted: int64(len(op.Asks)), Level: op.Owed, Born: 1}
	}
	return r
}

// hangs gives no answer until ctx ends.
func hangs(ctx context.Context) (wire.Reply, error) {
	<-ctx.Done()
	return wire.Reply{}, ctx.Err()
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// item owes units and counts them. It fails the test if the engine breaks the contract of
// Item.
type item struct {
	t    *testing.T
	name string
	node ratesync.Node
	// onSettle and onDrop run at the end of Settle and Drop. May be nil.
	onSettle func(ratesync.Answer)
	onDrop   func()

	mu        sync.Mutex
	pending   int64
	asks      []int64 // of the next ops
	once      bool    // asks are those of the next op only
	view      wire.View
	asked     int64 // units that the op in flight asks for
	granted   int64 // such units that were answered
	refused   int64 // such units that were dropped
	uncertain int64
	inflight  int64
	frozen    bool
	paid      int64
	lost      int64
	answers   []ratesync.Answer
}

func newItem(t *testing.T, name string, pending int64) *item {
	return &item{t: t, name: name, pending: pending}
}

func (i *item) Node() *ratesync.Node { return &i.node }

func (i *item) owe(n int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending += n
}

// ask lets the next op ask for units.
func (i *item) ask(n int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asks = append(i.asks, n)
}

func (i *item) Freeze(time.Time) (wire.Op, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.frozen {
		i.t.Errorf("%s: Freeze before the last one was settled or dropped", i.name)
	}
	if i.pending == 0 && len(i.asks) == 0 {
		return wire.Op{}, false
	}
	i.frozen, i.inflight, i.pending = true, i.pending, 0
	op := wire.Op{Key: i.name, Limit: limit}
	op.Owed, op.Asks, op.View = i.inflight, i.asks, i.view
	i.asked = op.Asked()
	if i.once {
		i.asks = nil
	}
	return op, true
}

func (i *item) thaw(what string) int64 {
	if !i.frozen {
		i.t.Errorf("%s: %s without Freeze", i.name, what)
	}
	n := i.inflight
	i.frozen, i.inflight = false, 0
	return n
}

func (i *item) Settle(a ratesync.Answer) {
	i.mu.Lock()
	n := i.thaw("Settle")
	if a.Level != n {
		i.t.Errorf("%s: got the answer to %d units, want that to %d", i.name, a.Level, n)
	}
	i.paid += n
	i.granted += i.asked
	i.answers = append(i.answers, a)
	i.mu.Unlock()
	if i.onSettle != nil {
		i.onSettle(a)
	}
}

func (i *item) Uncertain(op wire.Op) {
	i.mu.Lock()
	i.uncertain += op.Asked()
	i.mu.Unlock()
}

func (i *item) Drop() {
	i.mu.Lock()
	i.lost += i.thaw("Drop")
	i.refused += i.asked
	i.mu.Unlock()
	if i.onDrop != nil {
		i.onDrop()
	}
}

// account returns the pending, in-flight, paid and lost units.
func (i *item) account() [4]int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return [4]int64{i.pending, i.inflight, i.paid, i.lost}
}

// count returns the number of answers, and the units that are uncertain.
func (i *item) count() (answers int, uncertain int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.answers), i.uncertain
}

func (i *item) lastAnswer() ratesync.Answer {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.answers) == 0 {
		i.t.Fatalf("%s has no answer", i.name)
	}
	return i.answers[len(i.answers)-1]
}

// world is an engine over a fake Redis.
type world struct {
	*ratesync.Engine
	t       *testing.T
	redis   *fakeRedis
	breaker *circuit.Breaker
	cfg     ratesync.Config
}

const tags = 4

// calm is a breaker that never opens by itself.
var calm = breaker.Config{Failures: 1 << 30, FailureRatio: -1, SlowCall: -1}

func newWorld(t *testing.T, cfg breaker.Config, edit func(*ratesync.Config)) *world {
	t.Helper()
	br, err := circuit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeRedis{t: t}
	w := &world{t: t, redis: f, breaker: br, cfg: ratesync.Config{
		Caller: f, Names: lua.Names{Prefix: "hl", Tags: tags}, Process: "p1", Timeout: timeout,
		Breaker: func(int) *circuit.Breaker { return br },
	}}
	if edit != nil {
		edit(&w.cfg)
	}
	w.Engine = ratesync.New(w.cfg)
	t.Cleanup(w.Close)
	return w
}

// inBubble runs f over a healthy fake Redis in virtual time.
func inBubble(t *testing.T, cfg breaker.Config, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, cfg, nil)) })
}

// wantAttempts fails the test unless there were n attempts, and returns them.
func (w *world) wantAttempts(n int) []attempt {
	w.t.Helper()
	synctest.Wait()
	all := w.redis.all()
	if len(all) != n {
		w.t.Fatalf("%d attempts, want %d: %v", len(all), n, all)
	}
	return all
}

func now() time.Time { return time.Now() }
