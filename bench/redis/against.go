package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/hybridlimit/hybridlimit/lua"
)

// against compares the batch script of this tree with the script in a file, in rounds that alternate. It shows whether
// a change of the Lua code is worth it. Both scripts work on the same keys, so they must understand each other's
// states.
func against(ctx context.Context, srv *server, file string, rounds, ops int) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha1.Sum(text)
	scripts := []lua.Script{{Source: string(text), SHA: hex.EncodeToString(sum[:])}, lua.Batch}
	w := new(wire)
	rdb := srv.client(w)
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
	fmt.Fprintf(&b, "| ops in the batch | %s: µs/op of Redis, in the script | this tree | ratio |\n|--:|--:|--:|--:|\n", file)
	for _, size := range []int{1, 8, 64} {
		var got [2]series[opCost]
		for round := range rounds {
			for i := range scripts {
				at := (i + round) % 2
				c, err := costOf(ctx, srv, w, all[at].batch, size, ops*size/(size+3)) // fewer of single ops, which cost more
				if err != nil {
					return "", err
				}
				if round > 0 { // the first round creates the states
					got[at] = append(got[at], c)
				}
			}
		}
		cpu, usec := func(c opCost) float64 { return c.cpu }, func(c opCost) float64 { return c.usec }
		fmt.Fprintf(&b, "| %d | %.2f, %.2f | %.2f, %.2f | %.3f, %.3f |\n", size,
			got[0].median(cpu), got[0].median(usec), got[1].median(cpu), got[1].median(usec),
			got[1].median(cpu)/got[0].median(cpu), got[1].median(usec)/got[0].median(usec))
	}
	return b.String(), nil
}
