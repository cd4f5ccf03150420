package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// sizes are the measured batch sizes, in ops.
var sizes = []int{1, 8, 16, 32, 64, 128}

// costKeys is the number of keys among the ops.
const costKeys = 8192

// syncs makes ops as package hybrid sends them for keys in use: 7 units owed, a
// request for a lease, and the last view of the key.
type syncs struct {
	rdb    *redis.Client
	script lua.Script
	env    protocol.Envelope
	ops    []protocol.Op
	next   int // index of the next op
}

const costTag = "hl:v2:{11}:"

func newSyncs(rdb *redis.Client, script lua.Script, keys int) *syncs {
	// The buckets are neither full nor empty during the whole run, so that leases are granted.
	limit := hybridlimit.TokenBucket(1000, time.Second, 1_000_000_000)
	s := &syncs{rdb: rdb, script: script, env: protocol.Envelope{
		Key: costTag + "@env:0123456789abcdef0123456789abcdef", Epoch: costTag + "@epoch", TTL: 10 * time.Minute,
	}}
	for i := range keys {
		s.ops = append(s.ops, protocol.Op{
			Key: fmt.Sprintf("%sapi:customer-%08d", costTag, i), Limit: limit,
			Op: algo.Op{Owed: 7, Demand: 200_000, Div: 20},
		})
	}
	return s
}

// take returns the next ops.
func (s *syncs) take(size int) []protocol.Op {
	if s.next+size > len(s.ops) {
		s.next = 0
	}
	ops := s.ops[s.next : s.next+size]
	s.next += size
	return ops
}

// heard stores the answers of Redis as the views of the next ops.
func heard(ops []protocol.Op, raw any) error {
	r, err := protocol.DecodeReply(raw, ops)
	for i, a := range r.Answers {
		ops[i].View = protocol.View{Level: a.Level, At: r.Now, Born: a.Born}
	}
	return err
}

// batch sends size ops in one call with an envelope.
func (s *syncs) batch(ctx context.Context, size int) error {
	ops := s.take(size)
	s.env.Seq++
	keys, argv := protocol.EncodeBatch(s.env, ops)
	raw, err := s.rdb.EvalSha(ctx, s.script.SHA, keys, anys(argv)...).Result()
	if err != nil {
		return err
	}
	return heard(ops, raw)
}

// pipeline sends size calls of one op each, like direct calls, in one pipeline.
func (s *syncs) pipeline(ctx context.Context, size int) error {
	ops := s.take(size)
	pipe := s.rdb.Pipeline()
	for i := range ops {
		keys, argv := protocol.EncodeBatch(protocol.Envelope{}, ops[i:i+1])
		pipe.EvalSha(ctx, s.script.SHA, keys, anys(argv)...)
	}
	got, err := pipe.Exec(ctx)
	if err != nil {
		return err
	}
	for i := range ops {
		if err := heard(ops[i:i+1], got[i].(*redis.Cmd).Val()); err != nil {
			return err
		}
	}
	return nil
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

// opCost is the cost of ops of one shape, per op unless noted otherwise.
type opCost struct {
	cpu            float64 // µs of Redis, by INFO cpu
	usec           float64 // µs in the script, by commandstats
	sent, received float64 // bytes
	p50, p99       float64 // µs for which one call blocks Redis
}

// costOf measures send, which sends size ops, until at least the given number of ops is sent.
func costOf(ctx context.Context, srv *server, w *wire, send func(context.Context, int) error, size, ops int) (c opCost, err error) {
	if err = srv.admin.ConfigResetStat(ctx).Err(); err != nil {
		return c, err
	}
	wired := w.traffic()
	cpu, err := srv.cpu(ctx)
	if err != nil {
		return c, err
	}
	sent := 0
	for ; sent < ops; sent += size {
		if err := send(ctx, size); err != nil {
			return c, err
		}
	}
	cpu2, err := srv.cpu(ctx)
	if err != nil {
		return c, err
	}
	commands, err := srv.commands(ctx)
	if err != nil {
		return c, err
	}
	n, went := float64(sent), w.traffic().since(wired)
	c.cpu = float64((cpu2 - cpu).Nanoseconds()) / 1000 / n
	c.usec = commands["evalsha"]["usec"] / n
	c.sent, c.received = float64(went.sent)/n, float64(went.received)/n
	c.p50, c.p99, err = srv.blocked(ctx, "evalsha")
	return c, err
}

// costRow has the figures of one size: as a batch, and as a pipeline of single ops.
type costRow struct {
	size            int
	batch, pipeline series[opCost]
}

// costs measures all sizes in interleaved rounds. ops is the number of ops per shape and round.
func costs(ctx context.Context, srv *server, rounds, ops int) ([]costRow, error) {
	if err := srv.wipe(ctx); err != nil {
		return nil, err
	}
	w := new(wire)
	rdb := srv.client(w)
	defer rdb.Close()
	if err := rdb.ScriptLoad(ctx, lua.Batch.Source).Err(); err != nil {
		return nil, err
	}
	s := newSyncs(rdb, lua.Batch, costKeys)
	for range costKeys / 128 { // creates the states
		if err := s.batch(ctx, 128); err != nil {
			return nil, err
		}
	}
	rows := make([]costRow, len(sizes))
	for round := range rounds {
		for i := range sizes {
			at := (i + round) % len(sizes) // no size is always the first
			r := &rows[at]
			r.size = sizes[at]
			for _, shape := range []struct {
				send func(context.Context, int) error
				to   *series[opCost]
			}{{s.batch, &r.batch}, {s.pipeline, &r.pipeline}} {
				c, err := costOf(ctx, srv, w, shape.send, r.size, ops)
				if err != nil {
					return nil, fmt.Errorf("batches of %s: %w", strconv.Itoa(r.size), err)
				}
				*shape.to = append(*shape.to, c)
			}
		}
	}
	return rows, nil
}
