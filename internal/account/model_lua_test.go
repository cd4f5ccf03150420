package account

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// scriptMirror sends the ops of the model's Redis to the real script. It compares the answers, the stored values and their
// TTLs. The first difference fails the world's run.
type scriptMirror struct {
	w     *world
	mini  *miniredis.Miniredis
	rdb   *redis.Client
	limit hybridlimit.Limit
	names lua.Names
	steps int

	dies  map[string]int64 // Redis time, by key; the TTLs of miniredis do not advance
	saved map[string]string
	until map[string]int64
}

func newScriptMirror(t *testing.T) *scriptMirror {
	mini := redistest.Mini(t)
	s := &scriptMirror{mini: mini, rdb: redistest.Client(t, mini.Addr()), names: lua.Names{Prefix: "hl", Tags: 1}}
	if err := s.rdb.ScriptLoad(t.Context(), lua.Batch.Source).Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// join empties the mirror and attaches it to a world.
func (s *scriptMirror) join(w *world) {
	s.mini.FlushAll()
	s.w, s.limit, s.dies, s.saved, s.until = w, w.t.Limit, map[string]int64{}, nil, nil
	w.redis.mirror = s
}

func (s *scriptMirror) state() string          { return s.names.State(0, "model", "k") }
func (s *scriptMirror) epoch() string          { return s.names.Epoch(0) }
func (s *scriptMirror) envelope(id int) string { return s.names.Envelope(0, strconv.Itoa(id)) }

// run sends a batch of one op at a Redis time.
func (s *scriptMirror) run(env wire.Envelope, op algo.Op, at int64) wire.Reply {
	s.steps++
	s.mini.SetTime(time.UnixMicro(at))
	for key, dies := range s.dies {
		s.mini.SetTTL(key, time.Duration(dies-at)*time.Microsecond)
	}
	ops := []wire.Op{{Key: s.state(), Limit: s.limit, Span: s.w.redis.span, Op: op}}
	keys, argv := wire.EncodeBatch(env, ops)
	args := make([]any, len(argv))
	for i, a := range argv {
		args[i] = a
	}
	raw, err := s.rdb.EvalSha(context.Background(), lua.Batch.SHA, keys, args...).Result()
	if err != nil {
		s.w.fail("script: %v", err)
		return wire.Reply{}
	}
	reply, err := wire.DecodeReply(raw, ops)
	if err != nil {
		s.w.fail("reply: %v", err)
	}
	for _, key := range keys { // every write sets a TTL; other keys keep theirs
		if ttl := s.mini.TTL(key); ttl > 0 {
			s.dies[key] = at + ttl.Microseconds()
		}
	}
	return reply
}

func (s *scriptMirror) tick(at int64) {
	for key, dies := range s.dies {
		if at >= dies {
			s.mini.Del(key)
			delete(s.dies, key)
		}
	}
}

func (s *scriptMirror) batch(b modelBatch, op algo.Op, at int64, want modelReply, r *modelRedis) {
	env := wire.Envelope{Key: s.envelope(b.id), Epoch: s.epoch(), Seq: b.seq, TTL: ratesync.EnvelopeTTL}
	reply := s.run(env, op, at)
	expect := wire.Reply{Seen: want.seen, Stale: want.stale, Gap: want.gap, Epoch: want.epoch, Now: want.now}
	if !want.stale {
		expect.Answers = []wire.Answer{want.ans}
	}
	s.same("reply", fmt.Sprintf("%+v", reply), fmt.Sprintf("%+v", expect))
	e := r.env[b.id]
	life := e.ans.Life
	if e.ans.Gen != 0 { // the ledger has the lease
		life = -e.ans.Gen
	}
	if r.bucket.Queue {
		life = e.ans.Delay
	}
	granted := e.ans.Granted
	if e.ans.Dropped {
		granted = -1 - granted
	}
	lease := e.ans.Lease
	if e.ans.Refused {
		lease = -1 - lease
	}
	kind := "e"
	if e.gap {
		kind = "g"
	}
	s.stored(s.envelope(b.id), fmt.Sprintf("1%s%d %d %d %d %d c%d", kind, e.seq, e.stamp, granted, lease, life, e.chain), e.dies)
	s.storedState(r)
	if r.epoch != 0 {
		s.stored(s.epoch(), strconv.FormatInt(r.epoch, 10), r.epochDies)
	}
}

func (s *scriptMirror) exact(op algo.Op, at int64, want algo.Answer, r *modelRedis) {
	reply := s.run(wire.Envelope{}, op, at)
	s.same("reply", fmt.Sprintf("%+v", reply.Answers), fmt.Sprintf("%+v", []wire.Answer{want}))
	s.storedState(r)
}

func (s *scriptMirror) storedState(r *modelRedis) {
	st := r.state
	if st.Born == 0 {
		s.same("state", fmt.Sprint(s.mini.Exists(s.state())), "false")
		return
	}
	if st.Slot <= st.Last {
		st.Slot = 0
	}
	got, _ := s.mini.Get(s.state())
	stored, ok := wire.DecodeState(got)
	s.same(s.state(), fmt.Sprintf("%+v %t until %d", stored, ok, s.dies[s.state()]), fmt.Sprintf("%+v true until %d", st, r.dies))
}

func (s *scriptMirror) stored(key, text string, dies int64) {
	got, _ := s.mini.Get(key)
	s.same(key, fmt.Sprintf("%s until %d", got, s.dies[key]), fmt.Sprintf("%s until %d", text, dies))
}

func (s *scriptMirror) same(what, got, want string) {
	if got != want {
		s.w.fail("%s: the script has %s, the model %s", what, got, want)
	}
}

func (s *scriptMirror) lose(what modelKind) {
	switch what {
	case evWipe:
		s.mini.FlushAll()
		clear(s.dies)
	case evLoseKey:
		s.mini.Del(s.state())
		delete(s.dies, s.state())
	case evLoseEnvelopes:
		for key := range maps.Clone(s.dies) {
			if key != s.state() && key != s.epoch() {
				s.mini.Del(key)
				delete(s.dies, key)
			}
		}
	case evSave:
		s.saved, s.until = map[string]string{}, maps.Clone(s.dies)
		for _, key := range s.mini.Keys() {
			s.saved[key], _ = s.mini.Get(key)
		}
	case evFailover:
		s.mini.FlushAll()
		for key, text := range s.saved {
			_ = s.mini.Set(key, text)
		}
		s.dies = maps.Clone(s.until)
	}
}

// TestModelIsTheScript runs the schedules of TestModel on the model's Redis and on lua/batch.lua, and compares each step.
func TestModelIsTheScript(t *testing.T) {
	seed := testenv.Seed(t)
	mirror := newScriptMirror(t)
	play := func(pl *modelPlan, trace *strings.Builder) string {
		w := pl.world(mutNone)
		w.trace = trace
		mirror.join(w)
		return pl.runIn(w).bad
	}
	modes, hazards := []Mode{ModeAuto, ModeStrict, ModeDeferred}, []hazard{0, hazCrash, hazLoss, hazClock, hazMembers, hazFailover, hazClass}
	runs := testenv.Runs(168, 8000)
	for i := range runs {
		cell := i / 4
		pl := planOf(seed+uint64(i), []family{buckets, windows, queues, calendars}[i%4], modes[cell%len(modes)], hazards[cell/len(modes)%len(hazards)])
		pl.plain = false // the script is not plain
		if bad := play(pl, nil); bad != "" {
			small := pl.shrink(func(pl *modelPlan) bool { return play(pl, nil) != "" })
			var trace strings.Builder
			play(small, &trace)
			t.Fatalf("HYBRIDLIMIT_SEED=%d: %s\n%v%s", seed+uint64(i), bad, small, trace.String())
		}
	}
	t.Logf("%d schedules, %d batches compared", runs, mirror.steps)
}
