package lua_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// A text that this library cannot have written counts as no state. The key begins again,
// and the next debit overwrites the text.
func TestUnreadableStateIsLost(t *testing.T) {
	garbage := map[string]string{
		"empty": "", "words": "hello", "other schema": "2b1 1 1 1 1", "other algorithm": "1w1 1 1 1 1",
		"short": "1b1 1 1 1", "long": "1b1 1 1 1 1 1", "nan": "1bnan nan nan nan nan", "fraction": "1b1.5 1 1 1 1",
		"no unit": "1b0 5 0 643706cbd3000 1", "not born": "1b100000 5 0 0 1", "line end": "1b1 1 1 1 1\n",
		// Regressions: these were read, and the reply did not fit 64 bits.
		"born beyond 2^53":  "1b100000 5 0 99999999999999999999 1",
		"level beyond 2^53": "1b100000 99999999999999999999 0 643706cbd3000 1",
		"level below -2^53": "1b100000 -99999999999999999999 0 643706cbd3000 1",
		"age beyond 2^53":   "1b100000 5 99999999999999999999 643706cbd3000 1",
		"since beyond 2^53": "1b100000 5 0 643706cbd3000 99999999999999999999",
		"mark empty":        "1b186a0 5 0 643706cbd3000 1 z",
		"mark of words":     "1b186a0 5 0 643706cbd3000 1 zx",
		"no letter":         "1b186a0 5 0 643706cbd3000 1 z1 1",
		"mark far":          "1b186a0 5 0 643706cbd3000 1 z99999999999999999999",
		"mark before all":   "1b186a0 5 0 643706cbd3000 1 z-643706cbd3000",
		"no hexadecimal":    "1b186g0 5 0 643706cbd3000 1",
		"plus":              "1b+5 5 0 643706cbd3000 1",
		"tail short":        "1b100000 5 0 643706cbd3000 1 t",
		"tail long":         "1b100000 5 0 643706cbd3000 1 t1  o1",
		"tail negative":     "1b100000 5 0 643706cbd3000 1 t-1",
		"wait beyond 2^53":  "1b100000 5 0 643706cbd3000 1 t99999999999999999999",
		"out beyond 2^53":   "1b100000 5 0 643706cbd3000 1 o99999999999999999999",
		"binary":            "\x00\xff\r\n1b1 1 1 1 1",
		"very long":         strings.Repeat("1", 100_000),
	}
	onEachStore(t, func(t *testing.T, st store) {
		check := func(name string) {
			t.Helper()
			before := st.dump(t)
			if a := st.one(t, "k", ten, algo.Op{}, start); a.Level != 500_000 || a.Born != 0 || st.dump(t) != before {
				t.Errorf("%s: peek %+v left %q", name, a, st.dump(t))
			}
			if a := st.one(t, "k", ten, algo.Op{Owed: 2}, start); a.Level != 300_000 || a.Born != start {
				t.Errorf("%s: debit %+v", name, a)
			}
			if got := st.get(t, "k"); got != bucketText(100000, 300000, 0, start, 2) {
				t.Errorf("%s: the debit wrote %q", name, got)
			}
			st.del(t, "k")
		}
		for name, text := range garbage {
			if s, ok := wire.DecodeState(text); ok {
				t.Errorf("%s: decoded to %+v", name, s)
			}
			st.set(t, "k", text)
			check(name)
		}
		ctx := context.Background()
		st.rdb.RPush(ctx, "k", "a", "b")
		check("list")
		st.rdb.HSet(ctx, "k", "f", "v")
		check("hash")
	})
}

// An unreadable envelope or epoch counts as lost, whatever its type.
func TestUnreadableEnvelopeIsLost(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for i, text := range []string{"", "1e", "1e5", "2e5 1 0 0 0", "words", "1ex y z"} {
			now := start + int64(i)
			st.set(t, "env", text)
			st.set(t, "epoch", "x"+text)
			if r := st.batch(t, envelope(5), []wire.Op{owe("k", 1)}, now); !r.Gap || r.Seen || r.Stale || r.Epoch != now {
				t.Errorf("%q: %+v", text, r)
			}
		}
		st.del(t, "env", "epoch")
		st.rdb.RPush(context.Background(), "env", "a")
		st.rdb.RPush(context.Background(), "epoch", "a")
		st.batch(t, envelope(6), []wire.Op{owe("k", 1)}, start)
		if r := st.batch(t, envelope(6), []wire.Op{owe("k", 1)}, start); !r.Seen {
			t.Errorf("after a list: %+v", r)
		}
	})
}

// An unreadable window counts as lost.
func TestUnreadableWindowIsLost(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, text := range []string{
			"1f", "1f989680 a8212 1 0 1", "1f989680 a8212 1 0 1 0 0", "1f989680 a8212 1 0 0 0", "1f0 a8212 1 0 1 0", "1f989680 -1 1 0 1 0",
			"1f989680 a8212 -1 0 1 0", "1f989680 20000000000000 1 0 1 0", "1f989680 a8212 40000000000000 0 1 0", "1f989680 a8212 1 0 1 0 z-1",
			"1f989680 a8212 1 0 1 0 z20000000000000", "1s989680 a8212 1 0 1 0", "1f989680 a8212 1 0 1 0 @1", "1f989680 a8212 1.5 0 1 0",
		} {
			st.set(t, "k", text)
			if s, ok := wire.DecodeState(text); ok && text[1] == 'f' {
				t.Errorf("%q: decoded to %+v", text, s)
			}
			if a := st.one(t, "k", fixed, algo.Op{}, start); a.Level != 10 || a.Born != 0 {
				t.Errorf("%q: %+v", text, a)
			}
		}
	})
}
