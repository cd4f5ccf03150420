package lua_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// codecLimits are limits of every algorithm except the log, which has no envelope.
var codecLimits = append([]hybridlimit.Limit{
	hybridlimit.LeakyQueue(3, 7*time.Second, 2), hybridlimit.FixedWindow(5, time.Minute), hybridlimit.SlidingWindow(1_000_000, 24*time.Hour),
}, diffLimits...)

// limitText returns the line of ParsedBatch for a limit.
func limitText(l hybridlimit.Limit) string {
	k := algo.LimitOf(l)
	unit, full := k.Unit(), k.Full()
	return fmt.Sprintf("%c %d %d", k.Kind.Letter(), unit, full)
}

// The library reads an encoded batch as the codec meant it.
func TestEncodedBatchIsReadBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		rapid.Check(t, func(t *rapid.T) {
			any53 := rapid.Int64Range(0, 1<<53-1)
			some := rapid.OneOf(rapid.Just(int64(0)), any53)
			env := wire.Envelope{Key: "e", Epoch: "p", Seq: rapid.Int64Range(1, 1<<53-1).Draw(t, "seq"), TTL: time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "ttl")) * time.Millisecond}
			var ops []wire.Op
			for range rapid.IntRange(1, 12).Draw(t, "ops") {
				ops = append(ops, wire.Op{Key: "k", Limit: rapid.SampledFrom(codecLimits).Draw(t, "limit"), Op: algo.Op{
					Owed: any53.Draw(t, "owed"), Asks: rapid.SliceOfN(any53, 0, 4).Draw(t, "asks"), Partial: rapid.Bool().Draw(t, "partial"),
					Lost:   rapid.Bool().Draw(t, "lost"),
					Demand: any53.Draw(t, "demand"), Div: any53.Draw(t, "div"),
					Reset: rapid.Bool().Draw(t, "reset"), Win: some.Draw(t, "win"), Refund: some.Draw(t, "refund"), RefundAt: some.Draw(t, "refund at"), MaxDelay: some.Draw(t, "max delay"), Since: some.Draw(t, "since"),
					ID:   rapid.StringN(0, 12, -1).Draw(t, "id"),
					View: wire.View{Prev: some.Draw(t, "prev"), Level: rapid.Int64Range(-1<<53+1, 1<<53-1).Draw(t, "level"), At: any53.Draw(t, "at"), Born: any53.Draw(t, "born")},
					Gen:  any53.Draw(t, "gen"), Had: any53.Draw(t, "had"), Keep: any53.Draw(t, "keep"), Back: some.Draw(t, "back"),
					Floor: some.Draw(t, "floor"), Upper: rapid.Bool().Draw(t, "upper"), Queued: rapid.Bool().Draw(t, "queued"), MaxLife: some.Draw(t, "max life"),
					Used: some.Draw(t, "used"), UsedBy: some.Draw(t, "used by"),
				}})
				if op := &ops[len(ops)-1]; len(op.Asks) > 1 {
					op.MaxDelay = 0
				}
			}
			keys, argv := wire.EncodeBatch(env, ops)
			raw, err := st.run(lua.ParsedBatch, keys, argv)
			if err != nil {
				t.Fatal(err)
			}
			got := raw.([]any)
			if want := fmt.Sprintf("%d %d", env.Seq, env.TTL.Milliseconds()); got[0] != want {
				t.Fatalf("header %q, want %q", got[0], want)
			}
			limits := got[1 : len(got)-len(ops)]
			for i, op := range ops {
				v := op.View
				rest := fmt.Sprintf(" %d %t %t %t %d %d %d %d %d %d %d %d", op.Owed, op.Partial, op.Lost, op.Reset, op.Demand, op.Div, v.Born, v.Level, v.At, op.Gen, op.Had, op.Keep)
				for _, n := range op.Asks {
					rest += fmt.Sprintf(" %d", n)
				}
				rest += fmt.Sprintf(" w%d r%d b%d d%d p%d n%d s%d k%d a%t f%d u%t q%t l%d o%d e%d i%s", op.Win, op.Refund, op.RefundAt, op.MaxDelay, v.Prev, v.Next, op.Since, op.Back, op.Ahead, op.Floor, op.Upper && op.Div > 0, op.Queued && !op.Upper && op.Div > 0, op.MaxLife, op.Used, op.UsedBy, url.QueryEscape(op.ID))
				text := got[len(got)-len(ops)+i].(string)
				index := 0
				if _, err := fmt.Sscan(text, &index); err != nil || index < 1 || index > len(limits) || text != fmt.Sprint(index)+rest {
					t.Fatalf("op %d is %q, want a limit and %q", i, text, rest)
				}
				if want := limitText(op.Limit); limits[index-1] != want {
					t.Fatalf("op %d has limit %q, want %q", i, limits[index-1], want)
				}
			}
		})
	})
}
