package lua_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

const rateKey = "p:v2:{3}:@rate:api:k"

func leaseKey(process string) string { return "p:v2:{3}:@lease:" + process + ":api:k" }

// rates sends an exchange of a process at a time in µs.
func (st store) rates(t testing.TB, now int64, process string, op ratelease.Op) wire.RateAnswer {
	t.Helper()
	ops := []ratelease.Op{op}
	raw, err := st.run(lua.TimedRates, []string{rateKey, leaseKey(process)}, append(wire.EncodeRates(ops), fmt.Sprint(now)))
	if err != nil {
		t.Fatal(err)
	}
	answers, err := wire.DecodeRates(raw, ops)
	if err != nil {
		t.Fatal(err)
	}
	return answers[0]
}

// stateText and recordText are the texts in which Redis keeps them.
func stateText(s ratelease.State) string {
	return fmt.Sprintf("1 %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f", s.Born, s.Last, s.Generation, s.Level, s.Rate, s.Burst,
		s.Leased[0], s.Leased[1], s.Depth[0], s.Depth[1], s.Demand[0], s.Demand[1], s.Peak[0], s.Peak[1], s.Unknown, s.Told, s.ToldOut, s.Reset) + s.More
}

func recordText(r ratelease.Record) string {
	a := r.Answer
	return fmt.Sprintf("1 %.0f %.0f %.0f %.0f %.0f %.0f %.0f %d %d %d %d %d %d %d %d %d", r.Number, r.Born, r.Generation, r.Leased, r.Depth, r.Granted, r.Owed,
		a.Rate, a.Depth, a.Units, a.Held, a.Next, a.Born, a.At, a.Level, a.Out)
}

// ratesDiffer sends the same exchanges to Redis and to the Go twin.
type ratesDiffer struct {
	st      store
	rng     *rand.Rand
	now     int64
	state   ratelease.State
	records map[string]ratelease.Record
	views   map[string]ratelease.View
	number  int64
	last    map[string]ratelease.Op
	terms   ratelease.Terms
	saw     map[string]int
}

// TestRatesEqualGo checks that the script on Redis and the Go twin give the same answers, and leave the same states with
// the same TTLs.
func TestRatesEqualGo(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		d := &ratesDiffer{
			st: st, rng: testenv.Rand(t), now: start, records: map[string]ratelease.Record{}, views: map[string]ratelease.View{},
			last: map[string]ratelease.Op{}, saw: map[string]int{},
		}
		d.limit()
		missing := func() []string {
			all := []string{"rate", "units", "waits", "stale", "again", "lost", "debt", "unknown", "clock", "told again", "later version"}
			return slices.DeleteFunc(all, func(what string) bool { return d.saw[what] > 0 })
		}
		most := plays(1500, 30_000)
		for n := 0; n < most || n < 10*most && len(missing()) > 0; n++ {
			d.round(t)
			if t.Failed() {
				return
			}
		}
		if kinds := missing(); len(kinds) > 0 {
			t.Errorf("no exchange was %q: %v", kinds, d.saw)
		}
	})
}

// limit draws another limit.
func (d *ratesDiffer) limit() {
	rate := []int64{1, 40, 1e4, 1e7, 1e9}[d.rng.IntN(5)]
	d.terms = ratelease.Terms{Rate: max(1, rate*ratelease.Micro/(1+d.rng.Int64N(3))), Burst: min(ratelease.Largest, max(1, rate*(1+d.rng.Int64N(20))/2)) * ratelease.Micro}
}

func (d *ratesDiffer) round(t *testing.T) {
	d.now += d.rng.Int64N(300_000)
	process := string(rune('a' + d.rng.IntN(5)))
	switch d.rng.IntN(100) {
	case 0:
		d.now -= d.rng.Int64N(10_000_000)
		d.saw["clock"]++
	case 1:
		d.now += d.rng.Int64N(20_000_000)
	case 2:
		d.st.del(t, rateKey)
		d.state = ratelease.State{}
		d.saw["lost"]++
	case 3:
		d.st.del(t, leaseKey(process))
		delete(d.records, process)
	case 4:
		d.limit()
	case 5:
		if d.state.Born > 0 { // a later version writes
			d.state.More = []string{"", " y1f", " b-2 y1f", " z" + strings.Repeat("f", 254)}[d.rng.IntN(4)]
			d.st.rdb.Set(t.Context(), rateKey, stateText(d.state), time.Duration(d.state.TTL())*time.Millisecond)
			d.saw["later version"]++
		}
	}
	r, again := d.records[process], d.rng.IntN(20) == 0
	op := d.last[process]
	if !again || op.Number == 0 {
		d.number++
		micro := func(most int64) int64 { return d.rng.Int64N(min(most, ratelease.Largest)*ratelease.Micro + 1) }
		burst := d.terms.Burst / ratelease.Micro
		op = ratelease.Op{
			Terms: d.terms, Number: d.number, Procs: 1 + d.rng.Int64N(6), Demand: micro(d.terms.Rate/ratelease.Micro + 2), Span: d.rng.Int64N(ratelease.Life + 1),
			Most: 1 + d.rng.Int64N(1+burst/4), View: d.views[process], Owed: op.Owed, Acked: op.Owed,
		}
		if d.rng.IntN(3) == 0 {
			op.Have, op.Back, op.Spilt = micro(1+burst/8), micro(1+burst/8), micro(1+burst/8)
		}
		if d.rng.IntN(2) == 0 {
			op.Want, op.Wish = micro(1+burst/2), micro(1+burst/8)
		}
		if d.rng.IntN(5) == 0 {
			op.Owed += 1 + d.rng.Int64N(1+burst/2)
		}
		op.Reset = d.rng.IntN(40) == 0
		if d.rng.IntN(30) == 0 {
			op.Number = max(1, d.number-20)
		}
	} else {
		d.saw["again"]++
	}
	d.last[process] = op
	got := d.st.rates(t, d.now, process, op)
	var answer ratelease.Answer
	var ok bool
	before := d.state
	d.state, r, answer, ok = ratelease.Exchange(d.state, r, op, d.now)
	want := wire.RateAnswer{Answer: answer, Stale: !ok}
	if want.Stale {
		want.Answer = ratelease.Answer{}
		d.saw["stale"]++
	}
	if got != want {
		t.Errorf("%+v at %d: Redis answers %+v, and the twin %+v", op, d.now, got, want)
	}
	if !got.Stale {
		d.records[process], d.views[process] = r, got.View()
		for what, is := range map[string]bool{
			"rate": got.Rate > 0, "units": got.Units > op.Want, "waits": op.Want > 0 && got.Units > 0, "debt": got.Level < 0, "unknown": d.state.Unknown > 0,
			"told again": before.Told > 0 && d.state.Told > before.Told && d.state.ToldOut > before.ToldOut,
		} {
			if is {
				d.saw[what]++
			}
		}
	}
	d.compare(t, process)
}

// compare compares the texts, and the TTLs of what was written now.
func (d *ratesDiffer) compare(t *testing.T, process string) {
	ctx := context.Background()
	if got := d.st.rdb.Get(ctx, rateKey).Val(); got != "" && got != stateText(d.state) || got == "" && d.state.Born > 0 {
		t.Errorf("the state is %q, want %q", got, stateText(d.state))
	}
	if got := d.st.rdb.Get(ctx, leaseKey(process)).Val(); d.records[process].Number > 0 && got != recordText(d.records[process]) {
		t.Errorf("the record is %q, want %q", got, recordText(d.records[process]))
	}
	if got, want := d.st.ttl(t, rateKey), time.Duration(d.state.TTL())*time.Millisecond; d.state.Born > 0 && (got > want || got < want-time.Minute || got <= 0) {
		t.Errorf("the TTL is %v, want %v", got, want)
	}
}

// TestRatesOfGarbage checks that text and types that the library cannot have written count as no state.
func TestRatesOfGarbage(t *testing.T) {
	ctx := context.Background()
	op := ratelease.Op{Terms: ratelease.Terms{Rate: 100e6, Burst: 100e6}, Number: 7, Procs: 1, Demand: 50e6, Want: 1e6, Most: 1}
	onEachStore(t, func(t *testing.T, st store) {
		st.del(t, rateKey, leaseKey("a"))
		fresh := st.rates(t, start, "a", op)
		good := []string{st.rdb.Get(ctx, rateKey).Val(), st.rdb.Get(ctx, leaseKey("a")).Val()}
		for i, key := range []string{rateKey, leaseKey("a")} {
			for name, spoil := range map[string]func() error{
				"hash":     func() error { return st.rdb.HSet(ctx, key, "a", "b").Err() },
				"empty":    func() error { return st.rdb.Set(ctx, key, "", 0).Err() },
				"word":     func() error { return st.rdb.Set(ctx, key, "hello", 0).Err() },
				"schema":   func() error { return st.rdb.Set(ctx, key, "2"+good[i][1:], 0).Err() },
				"short":    func() error { return st.rdb.Set(ctx, key, good[i][:strings.LastIndex(good[i], " ")], 0).Err() },
				"more":     func() error { return st.rdb.Set(ctx, key, good[i]+" 1", 0).Err() },
				"negative": func() error { return st.rdb.Set(ctx, key, strings.Replace(good[i], " ", " -", 1), 0).Err() },
				"huge":     func() error { return st.rdb.Set(ctx, key, good[i]+"00000000000000000", 0).Err() },
				"letter":   func() error { return st.rdb.Set(ctx, key, good[i]+" y", 0).Err() },
				"large":    func() error { return st.rdb.Set(ctx, key, good[i]+" Y1", 0).Err() },
				"tail":     func() error { return st.rdb.Set(ctx, key, good[i]+" y"+strings.Repeat("f", 256), 0).Err() },
				"long":     func() error { return st.rdb.Set(ctx, key, good[i]+strings.Repeat(" 1", 1000), 0).Err() },
			} {
				st.del(t, rateKey, leaseKey("a"))
				if err := spoil(); err != nil {
					t.Fatal(err)
				}
				if got := st.rates(t, start, "a", op); got != fresh {
					t.Errorf("%s at %s: %+v, want %+v", name, key, got, fresh)
				}
				for _, k := range []string{rateKey, leaseKey("a")} {
					if ttl := st.ttl(t, k); ttl <= 0 {
						t.Errorf("%s at %s: the TTL of %s is %v", name, key, k, ttl)
					}
				}
			}
		}
	})
}

// TestRatesOfHostileMessages checks that messages that the library cannot have sent change nothing.
func TestRatesOfHostileMessages(t *testing.T) {
	const good = "1 1 1 0 0 0 0 0 0 0 1 0 0 1000000 1000000 0 0 0 0 0 0"
	onEachStore(t, func(t *testing.T, st store) {
		keys := []string{rateKey, leaseKey("a")}
		st.del(t, keys...)
		for _, argv := range [][]string{
			nil,
			{""},
			{"hello"},
			{good, good},
			{good + " "},
			{good + " 1"},
			{"2" + good[1:]},
			{strings.TrimSuffix(good, " 0")},
			{strings.Replace(good, "1 1 1", "1 0 1", 1)},
			{strings.Replace(good, "1 1 1", "1 1 0", 1)},
			{strings.Replace(good, "1 1 1", "1 -1 1", 1)},
			{strings.Replace(good, "1000000 1000000", "0 1000000", 1)},
			{strings.Replace(good, "1000000 1000000", "1000000 999999", 1)},
			{strings.Replace(good, "1000000 1000000", "1000000 1000000000000001", 1)},
			{strings.Replace(good, "1000000 1000000", "nan 1000000", 1)},
			{strings.Replace(good, " 0 1 0 0 ", " 0 0 0 0 ", 1)},
			{strings.Replace(good, "1 1 1 0 0", "1 1 1 0 4000001", 1)},
			{"1 99999999999999999999 1 0 0 0 0 0 0 0 1 0 0 1000000 1000000 0 0 0 0 0 0"},
			slices.Repeat([]string{good}, 65),
		} {
			raw, err := st.run(lua.Rates, keys, argv)
			if !redis.HasErrorPrefix(err, "HLRATES unreadable") {
				t.Errorf("%.80q: %v, %v", argv, raw, err)
			}
		}
		if n := st.rdb.Exists(context.Background(), keys...).Val(); n != 0 {
			t.Errorf("%d keys were written", n)
		}
		if _, err := st.run(lua.Rates, keys, []string{good}); err != nil {
			t.Errorf("the good message: %v", err)
		}
	})
}

// TestRatesOfOneKeyTwice checks that two exchanges of one key in one message run one after the other.
func TestRatesOfOneKeyTwice(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		op := ratelease.Op{Terms: ratelease.Terms{Rate: 1e6, Burst: 10e6}, Number: 1, Procs: 1, Want: 6e6, Most: 1}
		other := op
		other.Number = 2
		ops, keys := []ratelease.Op{op, other}, []string{rateKey, leaseKey("a"), rateKey, leaseKey("a")}
		st.del(t, keys[:2]...)
		raw, err := st.run(lua.TimedRates, keys, append(wire.EncodeRates(ops), fmt.Sprint(start)))
		if err != nil {
			t.Fatal(err)
		}
		a, err := wire.DecodeRates(raw, ops)
		if err != nil || a[0].Units != 6e6 || a[1].Units != 4e6 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}
