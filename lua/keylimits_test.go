package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// keys runs SetKeys, and returns the reply and the error.
func (st store) keys(t *testing.T, keys, argv []string) (wire.KeyLimits, error) {
	t.Helper()
	raw, err := st.run(lua.SetKeys, keys, argv)
	if err != nil {
		return wire.KeyLimits{}, err
	}
	k, err := wire.DecodeKeyLimits(raw)
	if err != nil {
		t.Fatal(err)
	}
	return k, nil
}

func (st store) setKey(t *testing.T, key, limit string) wire.KeyLimits {
	t.Helper()
	keys, argv := wire.EncodeSetKeyLimit(keysKey, changedKey, wire.KeyLimit{Key: key, Text: limit}, time.Hour)
	k, err := st.keys(t, keys, argv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (st store) tellKeys(t *testing.T, limits ...wire.KeyLimit) wire.KeyLimits {
	t.Helper()
	keys, argv := wire.EncodeTellKeyLimits(keysKey, changedKey, limits, time.Hour)
	k, err := st.keys(t, keys, argv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (st store) readKeys(t *testing.T) wire.KeyLimits {
	t.Helper()
	keys, argv := wire.EncodeReadKeyLimits(keysKey)
	k, err := st.keys(t, keys, argv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// texts returns limits as text, without their times.
func texts(k wire.KeyLimits) string {
	var out []string
	for _, one := range k.Of {
		out = append(out, fmt.Sprintf("%s=%s", one.Key, one.Text))
	}
	return strings.Join(out, " ")
}

// eachStore runs a test on a real Redis, with functions, and on miniredis.
func eachStore(t *testing.T, f func(t *testing.T, st store)) {
	t.Run("miniredis", func(t *testing.T) { f(t, miniStore(t)) })
	t.Run("Redis", func(t *testing.T) { f(t, store{rdb: redistest.New(t).Client(t)}) })
}

// Limits of keys are kept, replaced and taken back. Each change has another version, which settings tell, and a TTL.
func TestLimitsOfKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, st store) {
		if k := st.readKeys(t); k.Version != 0 || len(k.Of) != 0 || k.Now == 0 {
			t.Errorf("none: %+v", k)
		}
		last := int64(0)
		for i, c := range []struct{ key, limit, want string }{
			{"user:alice", "500/min burst 9", "user:alice=500/min burst 9"},
			{"a b\n%\x00ä", "1/s", "user:alice=500/min burst 9 a b\n%\x00ä=1/s"},
			{"user:alice", "7/s", "user:alice=7/s a b\n%\x00ä=1/s"},
			{"user:alice", "", "user:alice= a b\n%\x00ä=1/s"},
			{"user:alice", "8/s", "user:alice=8/s a b\n%\x00ä=1/s"},
		} {
			k := st.setKey(t, c.key, c.limit)
			if texts(k) != c.want || k.Version <= last || !slices.Equal(k.Of, st.readKeys(t).Of) {
				t.Errorf("%d: %q, version %d after %d", i, texts(k), k.Version, last)
			}
			last = k.Version
			said := st.tellAll(t, time.Hour, wire.Setting{})
			if said.Of[0].Keys != k.Version || said.Changed < k.Version {
				t.Errorf("%d: settings tell version %d, changed %d; want %d", i, said.Of[0].Keys, said.Changed, k.Version)
			}
		}
		if ttl := st.rdb.PTTL(t.Context(), keysKey).Val(); ttl <= 59*time.Minute || ttl > time.Hour {
			t.Errorf("the TTL is %v", ttl)
		}
		// Processes renew it with their settings.
		st.rdb.PExpire(t.Context(), keysKey, time.Minute)
		st.tellAll(t, time.Hour, wire.Setting{})
		if ttl := st.rdb.PTTL(t.Context(), keysKey).Val(); ttl <= 59*time.Minute {
			t.Errorf("settings do not renew: the TTL is %v", ttl)
		}
	})
}

// The later setting of a key counts, in whatever order processes tell. A limit that was taken back does not come back.
func TestToldLimitsOfKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, st store) {
		a := st.setKey(t, "a", "1/s").Of[0]
		was := st.setKey(t, "b", "2/s").Of[1]
		gone := st.setKey(t, "b", "").Of[1]
		all := st.readKeys(t)
		if k := st.tellKeys(t, a, was); texts(k) != "a=1/s b=" || k.Version != all.Version {
			t.Errorf("old news: %q, version %d, want %d", texts(k), k.Version, all.Version)
		}
		// Redis loses all. An operator sets a key before the processes tell.
		st.rdb.FlushAll(t.Context())
		st.setKey(t, "c", "3/s")
		st.tellKeys(t, a, was)
		k := st.tellKeys(t, gone)
		if texts(k) != "c=3/s a=1/s b=" {
			t.Errorf("after a loss: %q", texts(k))
		}
		if said := st.tellAll(t, time.Hour, wire.Setting{}); said.Changed < k.Version {
			t.Errorf("processes do not hear of what was restored: changed %d, version %d", said.Changed, k.Version)
		}
		// A time ahead of Redis's clock counts as now, and not for a key that Redis knows.
		ahead := wire.KeyLimit{Key: "d", Text: "4/s", At: k.Now + 1e12}
		if k := st.tellKeys(t, ahead); k.Of[3].At > k.Now {
			t.Errorf("%+v is later than now, %d", k.Of[3], k.Now)
		}
		ahead.Text = "5/s"
		if k := st.tellKeys(t, ahead); k.Of[3].Text != "4/s" {
			t.Errorf("a time ahead replaced a limit: %+v", k.Of[3])
		}
	})
}

// The 1001st key is refused, and nothing changes. Taken back limits make room.
func TestMostLimitsOfKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, st store) {
		var all []wire.KeyLimit
		for i := range wire.MaxKeyLimits {
			all = append(all, wire.KeyLimit{Key: fmt.Sprint("user:", i), Text: "500/min burst 1000", At: 1})
		}
		k := st.tellKeys(t, all...)
		if len(k.Of) != wire.MaxKeyLimits {
			t.Fatalf("%d keys", len(k.Of))
		}
		keys, argv := wire.EncodeSetKeyLimit(keysKey, changedKey, wire.KeyLimit{Key: "one more", Text: "1/s"}, time.Hour)
		if _, err := st.keys(t, keys, argv); err == nil || !strings.Contains(err.Error(), "HLFULL") {
			t.Errorf("one more: %v", err)
		}
		if now := st.readKeys(t); now.Version != k.Version || !slices.Equal(now.Of, k.Of) {
			t.Error("a refused limit changed the state")
		}
		st.setKey(t, "user:5", "1/s") // has a place
		st.setKey(t, "user:6", "")
		if k := st.setKey(t, "one more", "1/s"); len(k.Of) != wire.MaxKeyLimits+1 {
			t.Errorf("%d lines", len(k.Of))
		}
		// Long keys are bounded by bytes.
		st.rdb.FlushAll(t.Context())
		for i := range all {
			all[i].Key += strings.Repeat("x", 500)
		}
		keys, argv = wire.EncodeTellKeyLimits(keysKey, changedKey, all, time.Hour)
		if _, err := st.keys(t, keys, argv); err == nil || !strings.Contains(err.Error(), "HLFULL") {
			t.Errorf("half a megabyte: %v", err)
		}
	})
}

// Text that the library cannot have written counts as lost, and a message that it cannot read changes nothing.
func TestGarbageInLimitsOfKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, st store) {
		for _, text := range []string{"x", "1 5", "1 5\nx", "1 5\n5 1/s a", "1 5\n5 1/s a\n\n", "1 5\n5 a b c\n", "1 99999999999999999\n", "2 5\n5 1/s a\n", "1 5\n5 1/s \x00\n"} {
			st.rdb.Set(t.Context(), keysKey, text, time.Hour)
			if k := st.readKeys(t); len(k.Of) != 0 {
				t.Errorf("%q: %+v", text, k)
			}
			if k := st.setKey(t, "a", "1/s"); texts(k) != "a=1/s" {
				t.Errorf("%q, then set: %q", text, texts(k))
			}
		}
		st.rdb.Del(t.Context(), keysKey)
		st.rdb.LPush(t.Context(), keysKey, "a list")
		if k := st.readKeys(t); len(k.Of) != 0 {
			t.Errorf("a list: %+v", k)
		}
		st.rdb.FlushAll(t.Context())
		for _, argv := range [][]string{{"set"}, {"set", "0", "1 1/s a\n"}, {"set", "9", "1 1/s a\n2 1/s b\n"}, {"set", "9", ""}, {"tell", "9", "1 1/s a"}, {"drop", "9", "1 1/s a\n"}, {"set", "x", "1 1/s a\n"}} {
			if _, err := st.keys(t, []string{keysKey, changedKey}, argv); err == nil || !strings.Contains(err.Error(), "HLKEYS") {
				t.Errorf("%q: %v", argv, err)
			}
		}
		if _, err := st.keys(t, []string{keysKey}, []string{"set", "9", "1 1/s a\n"}); err == nil {
			t.Error("a change without the key of changes is accepted")
		}
		if n := st.rdb.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys were written", n)
		}
	})
}
