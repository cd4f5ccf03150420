package runner

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// This file names the window of an op of a calendar limit, if its sender has not. Redis decides by its own clock, so the
// window is that of Redis's time, as far as it is known.

// lead is the time by which the clock of the Redis of a client is ahead of this process's.
type lead struct {
	µs    atomic.Int64
	known atomic.Bool
}

func (l *lead) heard(redisNow, µs int64) {
	l.µs.Store(redisNow - µs)
	l.known.Store(true)
}

// dated reports whether the windows of an op follow from the time alone.
func dated(op *wire.Op) bool {
	return op.Limit.Algorithm == hybridlimit.AlgCalendarWindow && op.Limit.Calendar.Unit != hybridlimit.FromUse
}

// named returns a copy of the ops, with the windows at a time of Redis.
func named(ops []wire.Op, redisNow int64) []wire.Op {
	ops = slices.Clone(ops)
	for i := range ops {
		if op := &ops[i]; dated(op) {
			op.Span = algo.WindowOf(op.Limit).At(redisNow).Span()
		}
	}
	return ops
}

// inPeriods runs ops without an envelope by run. Ops of calendar limits get their windows. The first such message of a
// client asks for Redis's time before. If a window was not that of Redis's clock, Redis has granted nothing: the op is
// sent once more, with the window of the answer's time.
func (r *Runner) inPeriods(ctx context.Context, ops []wire.Op, run func([]wire.Op) (wire.Reply, error)) (wire.Reply, error) {
	if !slices.ContainsFunc(ops, func(op wire.Op) bool { return dated(&op) && op.Span == (algo.Span{}) }) {
		return run(ops)
	}
	if !r.ahead.known.Load() {
		sent := time.Now()
		reply, err := r.batch(ctx, nil, boxed([]string{"1 0 0 0"}), nil, func(wire.Reply) error { return nil })
		if err != nil {
			return wire.Reply{}, err
		}
		r.ahead.heard(reply.Now, sent.Add(time.Since(sent)/2).UnixMicro())
	}
	sent := time.Now()
	ops = named(ops, sent.UnixMicro()+r.ahead.µs.Load())
	reply, err := run(ops)
	if err != nil {
		return reply, err
	}
	r.ahead.heard(reply.Now, sent.Add(time.Since(sent)/2).UnixMicro())
	var again []int
	for i := range reply.Answers {
		if op := &ops[i]; reply.Answers[i].Ends == 0 && dated(op) && repeats(op, reply.Answers[i]) {
			again = append(again, i)
		}
	}
	switch {
	case len(again) == 0:
		return reply, nil
	case reply.Refused: // all or nothing: nothing was done
		return run(named(ops, reply.Now))
	}
	rest := make([]wire.Op, len(again))
	for k, i := range again {
		rest[k] = ops[i]
	}
	second, err := run(named(rest, reply.Now))
	if err != nil {
		return wire.Reply{}, err
	}
	for k, i := range again {
		reply.Answers[i] = second.Answers[k]
	}
	return reply, nil
}

// repeats reports whether an op that was granted nothing has done nothing that counts twice.
func repeats(op *wire.Op, ans wire.Answer) bool {
	return (op.Owed == 0 || ans.Dropped) && op.Refund+op.Back == 0 && !op.Reset
}
