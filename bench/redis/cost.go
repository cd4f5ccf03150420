package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
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
	got, err := pipelined(ctx, s.rdb, s.script, len(ops), func(i int) (keys, argv []string) {
		return protocol.EncodeBatch(protocol.Envelope{}, ops[i:i+1])
	})
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

// pipelined runs a script n times in one pipeline.
func pipelined(
	ctx context.Context, rdb *redis.Client, script lua.Script, n int, encode func(i int) (keys, argv []string),
) ([]redis.Cmder, error) {
	pipe := rdb.Pipeline()
	for i := range n {
		keys, argv := encode(i)
		pipe.EvalSha(ctx, script.SHA, keys, anys(argv)...)
	}
	return pipe.Exec(ctx)
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

// costOf measures send, which sends size ops, until at least the given number of ops is sent. The figures are per op,
// but p50 and p99 are the µs for which one call blocks Redis.
func costOf(
	ctx context.Context, m benchkit.Meter, send func(context.Context, int) error, size, ops int,
) (benchkit.Figures, error) {
	sent := 0
	s, err := m.Commands(ctx, func() error {
		for ; sent < ops; sent += size {
			if err := send(ctx, size); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	f := s.Per(float64(sent))
	f["p50"], f["p99"], err = m.Redis.Blocked(ctx, "evalsha")
	return f, err
}

// ops measures all sizes in interleaved rounds: as a batch, and alone, which is as a pipeline of single ops.
func (r *results) ops(ctx context.Context, srv *benchkit.Redis) error {
	m := benchkit.Meter{Redis: srv, Wire: new(benchkit.Wire)}
	rdb := srv.Client(m.Wire)
	defer rdb.Close()
	if err := rdb.ScriptLoad(ctx, lua.Batch.Source).Err(); err != nil {
		return err
	}
	s := newSyncs(rdb, lua.Batch, costKeys)
	for range costKeys / 128 { // creates the states
		if err := s.batch(ctx, 128); err != nil {
			return err
		}
	}
	return benchkit.Turns(0, r.scale.rounds, len(sizes), func(_, i int) error {
		f, err := costOf(ctx, m, s.batch, sizes[i], r.scale.costOps)
		if err != nil {
			return fmt.Errorf("batches of %d: %w", sizes[i], err)
		}
		alone, err := costOf(ctx, m, s.pipeline, sizes[i], r.scale.costOps)
		for name, v := range alone {
			f["alone "+name] = v
		}
		r.Add("op", "", strconv.Itoa(sizes[i]), f)
		return err
	})
}

// against compares the batch script of this tree with the script in a file, in rounds that alternate. It shows whether
// a change of the Lua code is worth it. Both scripts work on the same keys, so they must understand each other's
// states.
func against(ctx context.Context, srv *benchkit.Redis, file string, rounds, ops int) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha1.Sum(text)
	scripts := []lua.Script{{Source: string(text), SHA: hex.EncodeToString(sum[:])}, lua.Batch}
	m := benchkit.Meter{Redis: srv, Wire: new(benchkit.Wire)}
	rdb := srv.Client(m.Wire)
	defer rdb.Close()
	all := make([]*syncs, len(scripts))
	for i, script := range scripts {
		if err := rdb.ScriptLoad(ctx, script.Source).Err(); err != nil {
			return "", err
		}
		all[i] = newSyncs(rdb, script, costKeys)
		all[i].env.Key += script.SHA
	}
	var b strings.Builder
	benchkit.Head(&b, 0, "ops in the batch", file+": µs/op of Redis, in the script", "this tree", "ratio")
	for _, size := range []int{1, 8, 64} {
		got := make([]benchkit.Row, len(scripts))
		if err := benchkit.Turns(0, rounds, len(scripts), func(round, i int) error {
			f, err := costOf(ctx, m, all[i].batch, size, ops*size/(size+3)) // fewer of single ops, which cost more
			if round > 0 {                                                  // the first round creates the states
				got[i].Rounds = append(got[i].Rounds, f)
			}
			return err
		}); err != nil {
			return "", err
		}
		cpu, script := got[0].Median("cpu"), got[0].Median("script")
		cpu2, script2 := got[1].Median("cpu"), got[1].Median("script")
		fmt.Fprintf(&b, "| %d | %.2f, %.2f | %.2f, %.2f | %.3f, %.3f |\n", size,
			cpu, script, cpu2, script2, cpu2/cpu, script2/script)
	}
	return b.String(), nil
}
