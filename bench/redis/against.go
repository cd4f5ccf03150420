package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/lua"
)

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
