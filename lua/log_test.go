package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// history returns the admissions of a log at now.
func (st store) history(t testing.TB, key string, limit hybridlimit.Limit, now int64) []wire.Admission {
	t.Helper()
	return st.page(t, key, limit, 0, wire.MaxHistory, now).Log
}

func (st store) page(t testing.TB, key string, limit hybridlimit.Limit, after int64, most int, now int64) wire.Page {
	t.Helper()
	keys, argv := wire.EncodeHistory(key, limit, after, most)
	script := lua.History
	if now != 0 {
		script, argv = lua.TimedHistory, append(argv, strconv.FormatInt(now, 10))
	}
	raw, err := st.run(script, keys, argv)
	if err != nil {
		t.Fatal(err)
	}
	p, err := wire.DecodeHistory(raw)
	if err != nil || now != 0 && p.Now != now || len(p.Log) > most {
		t.Fatalf("%+v: %v", p, err)
	}
	return p
}

func TestHistory(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.one(t, "k", logged, algo.Op{Asks: []int64{1, 2}, ID: "a b{}\n✓"}, start)
		st.one(t, "k", logged, algo.Op{Owed: 4}, start+5)
		st.one(t, "k", logged, algo.Op{Asks: []int64{9}, Partial: true, ID: "5"}, start+window/2)
		st.one(t, "k", logged, algo.Op{Asks: []int64{1}, ID: "refused"}, start+window/2)
		all := []wire.Admission{
			{At: start, Units: 1, ID: "a b{}\n✓"},
			{At: start + 1, Units: 2, ID: "a b{}\n✓"},
			{At: start + 5, Units: 4},
			{At: start + window/2, Units: 3, ID: "5"},
		}
		for _, tc := range []struct {
			at   int64
			want []wire.Admission
		}{
			{start + window - 1, all},
			{start + window, all[1:]},
			{start + window + 4, all[2:]},
			{start + window + 5, all[3:]},
			{start + 2*window, nil},
		} {
			if got := st.history(t, "k", logged, tc.at); !slices.Equal(got, tc.want) {
				t.Errorf("at +%d: %+v, want %+v", tc.at-start, got, tc.want)
			}
		}
		// A refund removes units from the oldest entries first.
		st.one(t, "k", logged, algo.Op{Refund: 2}, start+window/2)
		all[1].Units = 1
		if got := st.history(t, "k", logged, start+window/2); !slices.Equal(got, all[1:]) {
			t.Errorf("after a refund: %+v", got)
		}
		if got := st.history(t, "none", logged, 0); len(got) != 0 {
			t.Errorf("no log: %+v", got)
		}
		st.set(t, "text", "words")
		if got := st.history(t, "text", logged, 0); len(got) != 0 {
			t.Errorf("text: %+v", got)
		}
		for _, argv := range [][]string{nil, {"x", "0", "1"}, {"1", "x", "1"}, {"1", "0", "-1"}, {"1", "0"}} {
			if _, err := st.run(lua.History, []string{"k"}, argv); err == nil {
				t.Errorf("%q: no error", argv)
			}
		}
	})
	for _, raw := range []any{
		nil, "OK", ints(), ints(1), ints(1, 5), ints(2, 5, 0), ints(1, 5, 0, 6, 7, 8), ints(1, 5, 1, 6), ints(1, 5, 1, 6, 7),
		[]any{int64(1), "5", int64(0)},
		[]any{int64(1), int64(5), int64(0), int64(6), int64(7), "id"},
		[]any{int64(1), int64(5), int64(1), int64(6), int64(0), "id"},
	} {
		if p, err := wire.DecodeHistory(raw); err == nil {
			t.Errorf("%v: %+v", raw, p)
		}
	}
}

// The pages together are the log. Each page reports the number of entries left.
func TestHistoryPages(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		limit := hybridlimit.SlidingLog(100, time.Minute)
		for i := range int64(25) {
			st.one(t, "k", limit, algo.Op{Asks: []int64{1}, ID: fmt.Sprint(i)}, start+i/3)
		}
		all := st.history(t, "k", limit, start+100)
		for _, most := range []int{1, 7, 24, 25, 26} {
			var got []wire.Admission
			after := int64(0)
			for {
				p := st.page(t, "k", limit, after, most, start+100)
				if p.Left != int64(25-len(got)) {
					t.Errorf("pages of %d: %d left after %d", most, p.Left, len(got))
				}
				if len(p.Log) == 0 {
					break
				}
				got, after = append(got, p.Log...), p.Log[len(p.Log)-1].At
			}
			if len(all) != 25 || !slices.Equal(got, all) {
				t.Errorf("pages of %d: %+v, want %+v", most, got, all)
			}
		}
	})
}

// Regression: entries that one op of a batch removed from a log still counted as old in the
// next op. The entries that the next op added were overlooked.
func TestRefundOfAnEntryAndMore(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for i := range int64(3) {
			st.one(t, "k", logged, algo.Op{Asks: []int64{1}}, start+i)
		}
		later := start + 3
		short := hybridlimit.SlidingLog(logged.Rate, time.Microsecond)
		got := st.batch(t, wire.Envelope{}, []wire.Op{
			{Key: "k", Limit: logged, Op: algo.Op{Refund: 1, RefundAt: start + 1}},
			{Key: "k", Limit: short, Op: algo.Op{Asks: []int64{1, 2}}},
			{Key: "k", Limit: logged},
		}, later)
		for i, want := range []struct{ level, ends int64 }{{logged.Rate - 2, window - 1}, {logged.Rate - 3, 2}, {logged.Rate - 3, window + 1}} {
			if a := got.Answers[i]; a.Level != want.level || a.Ends != want.ends {
				t.Errorf("op %d: %+v, want %+v", i, a, want)
			}
		}
	})
}

// A refund of one call removes units of that call, wherever its entry is in the log.
func TestRefundOfAnEntry(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			of, n int64
			want  string
		}{
			{0, 1, "[{0 1 a} {10 3 b} {20 1 c} {30 2 d}]"},
			{0, 2, "[{10 3 b} {20 1 c} {30 2 d}]"},
			{10, 2, "[{0 2 a} {10 1 b} {20 1 c} {30 2 d}]"},
			{10, 9, "[{0 2 a} {20 1 c} {30 2 d}]"},
			{30, 2, "[{0 2 a} {10 3 b} {20 1 c}]"},
			{30, 1, "[{0 2 a} {10 3 b} {20 1 c} {30 1 d}]"},
			{11, 1, "[{0 2 a} {10 3 b} {20 1 c} {30 2 d}]"}, // no entry has this time
			{40, 1, "[{0 2 a} {10 3 b} {20 1 c} {30 2 d}]"},
		} {
			st.del(t, "k")
			for i, n := range []int64{2, 3, 1, 2} {
				st.one(t, "k", logged, algo.Op{Asks: []int64{n}, ID: string(rune('a' + i))}, start+int64(i)*10)
			}
			before := st.dump(t)
			a := st.one(t, "k", logged, algo.Op{Refund: tc.n, RefundAt: start + tc.of}, start+50)
			var used int64
			log := st.history(t, "k", logged, start+50)
			for i := range log {
				used += log[i].Units
				log[i].At -= start
			}
			if got := fmt.Sprint(log); got != tc.want || a.Level != logged.Rate-used {
				t.Errorf("refund of %d at +%d: %s, %+v, want %s", tc.n, tc.of, got, a, tc.want)
			}
			if used == 8 && st.dump(t) != before {
				t.Errorf("refund of %d at +%d changed the log", tc.n, tc.of)
			}
			// The totals of the later entries are right: the free units are granted.
			if a := st.one(t, "k", logged, algo.Op{Asks: []int64{20}, Partial: true}, start+60); a.Granted != logged.Rate-used || a.Retry != window-60+log[0].At {
				t.Errorf("refund of %d at +%d: the next ask got %+v", tc.n, tc.of, a)
			}
		}
	})
}

// The totals restart before they leave the exact range of a double.
func TestLogTotalsBeginAnew(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		ctx := context.Background()
		for i, member := range []string{"9007199254740970 4", "9007199254740973 3 a", "9007199254740974 1 b"} {
			st.rdb.ZAdd(ctx, "k", redis.Z{Score: float64(start + int64(i)*10), Member: member})
		}
		a := st.one(t, "k", logged, algo.Op{Asks: []int64{2, 5}, ID: "c"}, start+window)
		if a.Granted != 2 || a.Level != 4 || a.Retry != 10 {
			t.Errorf("%+v", a)
		}
		got := fmt.Sprint(st.rdb.ZRange(ctx, "k", 0, -1).Val())
		if want := "[0000000000000003 3 a 0000000000000004 1 b 0000000000000006 2 c]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// A log finds the time to retry without a read of all entries.
func TestLogRetryIsASearch(t *testing.T) {
	st := realStore(t)
	limit := hybridlimit.SlidingLog(4000, time.Minute)
	for i := range int64(40) {
		st.one(t, "k", limit, algo.Op{Asks: slices.Repeat([]int64{1}, 100)}, start+i*1000)
	}
	st.rdb.ConfigResetStat(context.Background())
	// The entries of one batch are a µs apart.
	for _, n := range []int64{1, 2, 101, 1999, 4000} {
		at := (n-1)/100*1000 + (n-1)%100
		a := st.one(t, "k", limit, algo.Op{Asks: []int64{n}}, start+50_000)
		if want := 60_000_000 + at - 50_000; a.Granted != 0 || a.Retry != want {
			t.Errorf("%d units: %+v, want %d", n, a, want)
		}
	}
	stats := st.rdb.Info(context.Background(), "commandstats").Val()
	var calls int
	fmt.Sscanf(stats[max(0, strings.Index(stats, "cmdstat_zrange:")):], "cmdstat_zrange:calls=%d", &calls)
	if calls == 0 || calls > 5*(2+13) {
		t.Errorf("%d calls of ZRANGE for five retries, want 1 to 75", calls)
	}
}

// A log treats the state of another algorithm as lost, and the other algorithms treat a log
// as lost.
func TestKindsDoNotMix(t *testing.T) {
	limits := []hybridlimit.Limit{ten, hybridlimit.LeakyQueue(10, time.Second, 5), fixed, sliding, logged}
	onEachStore(t, func(t *testing.T, st store) {
		for i, from := range limits {
			for j, to := range limits {
				st.del(t, "k")
				st.one(t, "k", from, algo.Op{Owed: 5}, start)
				a := st.one(t, "k", to, algo.Op{}, start)
				if lost := a.Level == full(to); lost != (i != j) {
					t.Errorf("%v read by %v: %+v", from, to, a)
				}
				// The same in one batch. The state of the last write is stored.
				st.batch(t, wire.Envelope{}, []wire.Op{
					{Key: "k", Limit: from, Op: algo.Op{Owed: 1}}, {Key: "k", Limit: to, Op: algo.Op{Owed: 2}}, {Key: "k", Limit: from},
				}, start)
				if a := st.one(t, "k", to, algo.Op{}, start); i != j && a.Level != full(to)-2*unitOf(to) {
					t.Errorf("%v over %v: %+v", to, from, a)
				}
			}
		}
		st.del(t, "k")
		st.rdb.ZAdd(context.Background(), "k", redis.Z{Score: 1, Member: "words"})
		if a := st.one(t, "k", logged, algo.Op{Asks: []int64{10}}, start); a.Granted != 10 {
			t.Errorf("a set of words: %+v", a)
		}
		st.del(t, "k")
		st.rdb.RPush(context.Background(), "k", "a")
		if a := st.one(t, "k", logged, algo.Op{Asks: []int64{10}}, start); a.Granted != 10 || len(st.history(t, "k", logged, start)) != 1 {
			t.Errorf("a list: %+v", a)
		}
	})
}

func unitOf(l hybridlimit.Limit) int64 {
	if l.Algorithm == hybridlimit.AlgSlidingLog {
		return 1
	}
	return algo.LimitOf(l).Unit()
}

// TestCancelAfterARefundOfTheSameEntry checks that a cancel gives back no unit of an entry that a refund has given back
// before, in an earlier message or in the same one.
func TestCancelAfterARefundOfTheSameEntry(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		refund, cancel := algo.Op{Refund: 3}, algo.Op{Refund: 5, RefundAt: start}
		for key, messages := range map[string][][]algo.Op{"two": {{refund}, {cancel}}, "one": {{refund, cancel}}} {
			st.one(t, key, logged, algo.Op{Asks: []int64{5}}, start)
			st.one(t, key, logged, algo.Op{Asks: []int64{4}}, start+10)
			var a wire.Answer
			for _, message := range messages {
				var ops []wire.Op
				for _, op := range message {
					ops = append(ops, wire.Op{Key: key, Limit: logged, Op: op})
				}
				answers := st.batch(t, wire.Envelope{}, ops, start+20).Answers
				a = answers[len(answers)-1]
			}
			if used := logged.Rate - a.Level; used != 4 {
				t.Errorf("%s: %d units are used, want the 4 of the other entry", key, used)
			}
			if log := st.history(t, key, logged, start+40); len(log) != 1 || log[0].Units != 4 {
				t.Errorf("%s: %+v", key, log)
			}
		}
	})
}
