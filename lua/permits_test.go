package lua_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/test/permitstest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

const memoryKey = "p:v2:{3}:@holdings"

func heldKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("p:v2:{3}:@held:api:k%d", i)
	}
	return keys
}

// permits sends a message at a time in µs.
func (st store) permits(t testing.TB, now int64, keys []string, m permits.Message) (permits.Answer, error) {
	t.Helper()
	all, argv := wire.EncodePermits(memoryKey, keys, m)
	raw, err := st.run(lua.TimedPermits, all, append(argv, fmt.Sprint(now)))
	if redis.HasErrorPrefix(err, "HLPERMITS stale") {
		return permits.Answer{}, permits.ErrStale
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := wire.DecodePermits(raw, m)
	if err != nil {
		t.Fatal(err)
	}
	return a, nil
}

// holder is what a process of the test knows.
type holder struct {
	number, after, epoch int64
	had                  map[string]int64
	holders              map[string][]permits.Claim
}

// permitsDiffer sends the same messages to Redis and to the Go twin.
type permitsDiffer struct {
	st      store
	rng     *rand.Rand
	now     int64
	twin    *permitstest.Memory
	keys    []string
	holders map[string]*holder
	saw     map[string]int
}

// The script on Redis and the Go twin give the same answers, leave the same states, and
// ask for the same TTLs.
func TestPermitsEqualGo(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		d := &permitsDiffer{
			st: st, rng: testenv.Rand(t), now: start, twin: &permitstest.Memory{}, keys: heldKeys(4),
			holders: map[string]*holder{}, saw: map[string]int{},
		}
		for _, p := range []string{"a", "b", "process-3", "D_4"} {
			d.holders[p] = &holder{had: map[string]int64{}, holders: map[string][]permits.Claim{}}
		}
		missing := func() []string {
			all := []string{"granted", "refused", "lost", "stale", "gap", "claim", "reset", "above", "holders", "forgotten key"}
			return slices.DeleteFunc(all, func(what string) bool { return d.saw[what] > 0 })
		}
		most := plays(800, 20_000)
		for n := 0; n < most || n < 10*most && len(missing()) > 0; n++ { // a drawn seed may meet a rare kind late
			d.round(t)
			if t.Failed() {
				return
			}
		}
		if kinds := missing(); len(kinds) > 0 {
			t.Errorf("no message was %q: %v", kinds, d.saw)
		}
	})
}

// round moves the clock, sometimes loses a key, and sends a message.
func (d *permitsDiffer) round(t *testing.T) {
	d.now += d.rng.Int64N(700_000)
	switch d.rng.IntN(60) {
	case 0:
		d.now -= 5_000_000 // the clock steps back
	case 1:
		d.now += permits.HeldTTL / 2
	case 2:
		d.now += permits.Hour + permits.Second
	case 3:
		key := d.keys[d.rng.IntN(len(d.keys))]
		d.st.del(t, key)
		delete(d.twin.Keys, key)
	case 4:
		if d.rng.IntN(4) == 0 {
			d.st.del(t, memoryKey)
			d.twin.Expires = 0
		}
	}
	d.expire(t)
	process := []string{"a", "b", "process-3", "D_4"}[d.rng.IntN(4)]
	h := d.holders[process]
	keys, m := d.message(process, h)
	got, err := d.st.permits(t, d.now, keys, m)
	want, wantErr := d.twin.Receive(d.now, keys, m)
	if !errors.Is(err, wantErr) || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v of %v: Redis answers %+v, %v; the twin %+v, %v", m, keys, got, err, want, wantErr)
		return
	}
	if err != nil {
		d.saw["stale"]++
		return
	}
	d.compare(t, keys)
	d.note(h, keys, m, got)
}

// expire drops what has expired, since the time of the test is not that of Redis.
func (d *permitsDiffer) expire(t *testing.T) {
	for key, k := range d.twin.Keys {
		if d.now >= k.Expires {
			d.st.del(t, key)
			d.saw["forgotten key"]++
		}
	}
	if d.now >= d.twin.Expires {
		d.st.del(t, memoryKey)
	}
	d.twin.Expire(d.now)
}

func (d *permitsDiffer) message(process string, h *holder) ([]string, permits.Message) {
	m := permits.Message{Process: process, After: h.after, Epoch: h.epoch, Period: 1_000_000}
	if d.rng.IntN(20) > 0 {
		h.number++
	}
	m.Number = max(1, h.number)
	if d.rng.IntN(40) == 0 {
		m.After = m.Number + 3 // Redis has lost messages
		d.saw["gap"]++
	}
	order := d.rng.Perm(len(d.keys))[:1+d.rng.IntN(3)]
	var keys []string
	for _, i := range order {
		key := d.keys[i]
		op := permits.Op{
			Limit: 10 + int64(i), Keep: d.rng.Int64N(5), Want: d.rng.Int64N(6), Spare: d.rng.Int64N(4), Had: h.had[key],
			Procs: 1 + d.rng.Int64N(3), Rejoin: d.rng.IntN(10) == 0, Reset: d.rng.IntN(40) == 0,
		}
		if op.Want > 0 {
			op.First = 1 + d.rng.Int64N(op.Want)
		}
		if d.rng.IntN(4) == 0 {
			op.Claims = h.holders[key]
			if d.rng.IntN(3) == 0 {
				op.Claims = append(op.Claims[:len(op.Claims):len(op.Claims)], permits.Claim{Process: process, Number: h.number - 1})
			}
		}
		if len(op.Claims) > 0 {
			d.saw["claim"]++
		}
		if op.Reset {
			d.saw["reset"]++
		}
		keys, m.Ops = append(keys, key), append(m.Ops, op)
	}
	return keys, m
}

// note remembers an answer as a process does.
func (d *permitsDiffer) note(h *holder, keys []string, m permits.Message, a permits.Answer) {
	h.after, h.epoch = m.Number, a.Epoch
	for i, r := range a.Replies {
		h.had[keys[i]] = r.Booked
		h.holders[keys[i]] = r.Holders
		for what, is := range map[string]bool{
			"granted": r.Booked > m.Ops[i].Keep, "refused": r.Booked < m.Ops[i].Keep+m.Ops[i].Want, "lost": r.Lost,
			"above": r.Free < 0, "holders": len(r.Holders) > 1,
		} {
			if is {
				d.saw[what]++
			}
		}
	}
}

// compare compares the hashes and their TTLs with the twin.
func (d *permitsDiffer) compare(t *testing.T, keys []string) {
	ctx := context.Background()
	memory := d.st.rdb.HGetAll(ctx, memoryKey).Val()
	want := map[string]string{}
	if d.twin.Epoch > 0 {
		want[""] = fmt.Sprintf("1 %d %d %d", d.twin.Epoch, d.twin.Learn, d.twin.Sweep)
	}
	for p, n := range d.twin.Numbers {
		want[p] = fmt.Sprintf("%d %d", n.Number, n.At)
	}
	if !reflect.DeepEqual(memory, want) {
		t.Errorf("the memory is %v, want %v", memory, want)
	}
	for _, key := range keys {
		want, ttl := map[string]string{}, time.Duration(-2)
		if k := d.twin.Keys[key]; k != nil {
			want[""] = fmt.Sprintf("1 %d %d %d", k.Total, k.Scarce, k.Learn)
			if k.Starving != "" {
				want["!"] = fmt.Sprintf("%s %d %d", k.Starving, k.Since, k.Last)
			}
			for p, h := range k.Held {
				want[p] = fmt.Sprintf("%d %d", h.Permits, h.Number)
			}
			ttl = time.Duration(k.Expires-d.now) * time.Microsecond
		}
		if got := d.st.rdb.HGetAll(ctx, key).Val(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
		if got := d.st.ttl(t, key); got > ttl || got < ttl-time.Minute {
			t.Errorf("%s has a TTL of %v, want %v", key, got, ttl)
		}
	}
}

// Text and types that the library cannot have written count as lost: the key begins
// again, and learns.
func TestPermitsOfGarbage(t *testing.T) {
	ctx := context.Background()
	onEachStore(t, func(t *testing.T, st store) {
		key := heldKeys(1)
		number := int64(0)
		send := func(op permits.Op) permits.Reply {
			number++
			a, err := st.permits(t, start+number, key, permits.Message{Process: "a", Number: number, Period: 1_000_000, Ops: []permits.Op{op}})
			if err != nil {
				t.Fatal(err)
			}
			return a.Replies[0]
		}
		for name, spoil := range map[string]func(key string) error{
			"string":      func(key string) error { return st.rdb.Set(ctx, key, "x", 0).Err() },
			"set":         func(key string) error { return st.rdb.SAdd(ctx, key, "x").Err() },
			"no head":     func(key string) error { return st.rdb.HSet(ctx, key, "a", "3 1").Err() },
			"schema":      func(key string) error { return st.rdb.HSet(ctx, key, "", "2 3 0 0", "a", "3 1").Err() },
			"words":       func(key string) error { return st.rdb.HSet(ctx, key, "", "hello", "a", "3 1").Err() },
			"huge number": func(key string) error { return st.rdb.HSet(ctx, key, "", "1 99999999999999999999 0 0").Err() },
			"negative":    func(key string) error { return st.rdb.HSet(ctx, key, "", "1 -3 0 0").Err() },
		} {
			for _, spoiled := range []string{key[0], memoryKey} {
				st.del(t, key[0], memoryKey)
				if err := spoil(spoiled); err != nil {
					t.Fatal(err)
				}
				r := send(permits.Op{Limit: 5, Keep: 2, Had: 2, Procs: 1})
				if r.Booked != 2 || r.Usable != 2 || r.Free != 3 || !r.Lost {
					t.Errorf("%s at %s: %+v", name, spoiled, r)
				}
				if got := st.rdb.HGet(ctx, key[0], "a").Val(); got != fmt.Sprintf("2 %d", number) {
					t.Errorf("%s at %s: the holding is %q", name, spoiled, got)
				}
				for _, k := range []string{key[0], memoryKey} {
					if ttl := st.ttl(t, k); ttl <= 0 {
						t.Errorf("%s at %s: the TTL of %s is %v", name, spoiled, k, ttl)
					}
				}
			}
		}
		st.del(t, key[0], memoryKey)
		send(permits.Op{Limit: 5, Keep: 2, Procs: 1})
		if err := st.rdb.HSet(ctx, key[0], "a", "words").Err(); err != nil {
			t.Fatal(err)
		}
		if r := send(permits.Op{Limit: 5, Keep: 2, Had: 2, Procs: 1}); !r.Lost || r.Booked != 2 {
			t.Errorf("after garbage in the field of the process: %+v", r)
		}
	})
}

// Messages that the library cannot have sent change nothing.
func TestPermitsOfHostileMessages(t *testing.T) {
	key := heldKeys(1)[0]
	const head, op = "1 a 1 0 0 1000000", "5 0 1 1 0 0 1 0"
	onEachStore(t, func(t *testing.T, st store) {
		for _, argv := range [][]string{
			nil,
			{""},
			{"hello"},
			{"2 a 1 0 0 1000000", op},
			{"1 a 0 0 0 1000000", op},
			{"1 a 1 0 0 0", op},
			{"1 a 1 0 0 60000001", op},
			{"1 a:b 1 0 0 1000000", op},
			{"1 " + strings.Repeat("a", 65) + " 1 0 0 1000000", op},
			{"1 a 99999999999999999999 0 0 1000000", op},
			{head},
			{head, op, op},
			{head, ""},
			{head, "5"},
			{head, "-5 0 1 1 0 0 1 0"},
			{head, "5 0 1 2 0 0 1 0"},
			{head, "5 0 1 1 0 0 0 0"},
			{head, op + " "},
			{head, "5 0 1 1 0 0 1 4"},
			{head, op + " b"},
			{head, op + " b x"},
			{head, op + " b:c 1"},
			{head, op + "  b 1"},
			{head, "2251799813685249 0 1 1 0 0 1 0"},
			{head, "5 0 1 1 0 0 1e3 0"},
			{head, "nan 0 1 1 0 0 1 0"},
			{head, op + strings.Repeat(" b 1", 30_000)},
		} {
			raw, err := st.run(lua.Permits, []string{memoryKey, key}, argv)
			if !redis.HasErrorPrefix(err, "HLPERMITS unreadable") {
				t.Errorf("%.80q: %v, %v", argv, raw, err)
			}
		}
		if dump := st.dump(t); dump != "" {
			t.Errorf("hostile messages left %s", dump)
		}
	})
}

// A refusal names at most MaxHolders holders, and each of many within some seconds.
func TestPermitsOfManyHolders(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		const holders = 3*permits.MaxHolders + 5
		key, twin := heldKeys(1), &permitstest.Memory{}
		send := func(now int64, m permits.Message) permits.Reply {
			got, err := st.permits(t, now, key, m)
			want, wantErr := twin.Receive(now, key, m)
			if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("Redis answers %+v, %v; the twin %+v, %v", got, err, want, wantErr)
			}
			return got.Replies[0]
		}
		for i := range holders {
			send(start, permits.Message{Process: fmt.Sprintf("p%03d", i), Number: 1, Period: 1_000_000, Ops: []permits.Op{{Limit: holders, Keep: 1, Procs: 1}}})
		}
		named := map[string]bool{}
		for i := range int64(8) {
			r := send(start+i*permits.Second, permits.Message{Process: "new", Number: 1 + i, Period: 1_000_000, Ops: []permits.Op{{Limit: holders, Want: 1, First: 1, Procs: 1}}})
			if len(r.Holders) != permits.MaxHolders {
				t.Fatalf("a refusal names %d holders, want %d", len(r.Holders), permits.MaxHolders)
			}
			for _, h := range r.Holders {
				named[h.Process] = true
			}
		}
		if len(named) != holders {
			t.Errorf("in 8 s refusals named %d of %d holders", len(named), holders)
		}
	})
}

// An op reads and writes a fixed number of fields, for any number of holders.
func TestPermitsInnerCalls(t *testing.T) {
	st := realStore(t)
	key := heldKeys(1)
	for i := range 100 {
		m := permits.Message{Process: fmt.Sprint("p", i), Number: 1, Period: 1_000_000, Ops: []permits.Op{{Limit: 1000, Keep: 1, Procs: 1}}}
		if _, err := st.permits(t, start, key, m); err != nil {
			t.Fatal(err)
		}
	}
	m := permits.Message{Process: "p0", Number: 2, Period: 1_000_000, Ops: []permits.Op{{Limit: 1000, Keep: 1, Want: 1, First: 1, Procs: 1}}}
	if got, want := innerCalls(t, st, func() {
		if _, err := st.permits(t, start+4_000_000, key, m); err != nil {
			t.Error(err)
		}
	}), "hmget 2, hset 2, pexpire 2"; got != want {
		t.Errorf("a grant runs %s, want %s", got, want)
	}
}
