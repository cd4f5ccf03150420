package hybrid

import "github.com/hybridlimit/hybridlimit/internal/algo"

// modelEpoch is where the model's time starts on Redis's clock: 2025-11-13 in
// µs, where a float has lost the digits that a real timestamp loses.
const modelEpoch = 1_763_000_000_000_000

// modelRedis is one key in Redis and the envelopes of all processes: what
// lua/batch.lua does with a batch of one op, around the real arithmetic.
type modelRedis struct {
	bucket   algo.Bucket
	state    algo.State
	dies     int64 // µs; the state's TTL ends
	env      map[int]modelEnvelope
	longLife bool // a mutant: every grant lives for a second
	plain    bool // free leases of all there is, no ledger, no turns

	unheard map[modelBatch][]applied // applications that no process has heard of
	debited int64                    // units
}

type modelBatch struct {
	id  int // of the process
	seq int64
}

type modelEnvelope struct {
	seq, stamp int64
	ans        algo.Answer
	at         int64
}

// applied is one application of a batch: one, unless the key expired between
// two deliveries.
type applied struct {
	at      int64 // ns
	debited int64 // units
}

// modelReply is what travels back. at is when the grants were made.
type modelReply struct {
	ans algo.Answer
	now int64 // µs
	at  int64 // ns
}

// apply runs a batch that arrives at now, ns. A batch older than the last is
// not answered.
func (r *modelRedis) apply(b modelBatch, op algo.Op, now int64) (modelReply, bool) {
	at := r.tick(now)
	env, have := r.env[b.id]
	switch {
	case have && env.seq > b.seq:
		return modelReply{}, false
	case have && env.seq == b.seq && r.state.Born != 0 && r.state.Born <= env.stamp:
		_, ans, _ := r.bucket.Apply(r.state, algo.Op{}, at)
		ans.Granted, ans.Lease, ans.Life, ans.Gen = env.ans.Granted, env.ans.Lease, env.ans.Life, env.ans.Gen
		return modelReply{ans, at, env.at}, true
	}
	ans := r.run(op, at)
	if r.longLife {
		ans.Life = algo.MaxLease
	}
	took := ans.Granted + ans.Lease
	r.debited += op.Owed + took
	r.unheard[b] = append(r.unheard[b], applied{now, op.Owed + took})
	r.env[b.id] = modelEnvelope{b.seq, max(at, ans.Born), ans, now}
	return modelReply{ans, at, now}, true
}

// tick is the time in µs; a state whose TTL has ended is gone.
func (r *modelRedis) tick(now int64) int64 {
	at := modelEpoch + now/1000
	if r.state.Born != 0 && at >= r.dies {
		r.state = algo.State{}
	}
	return at
}

func (r *modelRedis) run(op algo.Op, at int64) algo.Answer {
	wants := op.Demand > 0 && op.Div > 0
	if r.plain {
		op.Div = 0
	}
	next, ans, dirty := r.bucket.Apply(r.state, op, at)
	if r.plain && wants && ans.Life > 0 && ans.Granted == sum(op.Asks) {
		ans.Lease = r.bucket.Units(next.Level)
		next.Level -= ans.Lease * r.bucket.Unit
		next.Since += ans.Lease
		ans.Level, ans.Born, dirty = next.Level, next.Born, dirty || ans.Lease > 0
	}
	if dirty {
		r.state, r.dies = next, at+r.bucket.TTL(next)*1000
	}
	return ans
}

func sum(ns []int64) (total int64) {
	for _, n := range ns {
		total += n
	}
	return total
}

// exact is an op without an envelope.
func (r *modelRedis) exact(n, now int64) bool {
	granted := r.run(algo.Op{Asks: []int64{n}}, r.tick(now)).Granted
	r.debited += granted
	return granted > 0
}

// heard notes that the process has got the answer of the application at that
// time.
func (r *modelRedis) heard(b modelBatch, at int64) {
	as := r.unheard[b]
	for i, a := range as {
		if a.at == at {
			r.unheard[b] = append(as[:i], as[i+1:]...)
			return
		}
	}
}

// wasted is what was debited without anybody hearing of it: by batches of
// processes that crashed, given up after they were applied, or applied twice
// because the key expired in between.
func (r *modelRedis) wasted() int64 {
	var sum int64
	for _, as := range r.unheard {
		for _, a := range as {
			sum += a.debited
		}
	}
	return sum
}
