package lua_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestALackingRightIsNoLostState lets a user without one right to read send each kind of message about a used-up limit. The
// script must fail or answer as with all rights, and the state must stay. A script that takes any error for a lost key admits
// everything, or deletes what other processes have told.
func TestALackingRightIsNoLostState(t *testing.T) {
	srv := redistest.New(t)
	admin := store{rdb: srv.Client(t)}
	user := store{rdb: srv.Client(t, func(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = "limiter", "secret", true })}

	other := fleetNames.Group("other")
	admin.pulse(t, wire.Pulse{Process: "q", Expiry: wire.MaxExpiry})
	admin.pulse(t, wire.Pulse{ID: "other", Process: "r", Expiry: wire.MaxExpiry})
	admin.one(t, "log", logged, algo.Op{Asks: []int64{logged.Rate}}, start)
	booked := permits.Message{Process: "q", Number: 1, Period: 1_000_000, Ops: []permits.Op{{Keep: 5, Limit: 5, Procs: 1}}}
	if _, err := admin.permits(t, start, heldKeys(1), booked); err != nil {
		t.Fatal(err)
	}
	now := start + 5*permits.Second // Redis has learnt

	heartbeat := func(st store) (string, error) {
		b, err := st.tryPulse(wire.Pulse{
			Process: "p", Others: []string{other}, Members: fleetNames.Members(), Member: &permits.Pulse{Suspects: []string{"q"}},
		})
		return fmt.Sprint(b.Alive, b.Others), err
	}
	ask := func(st store) (string, error) {
		ops := []wire.Op{{Key: "log", Limit: logged, Op: algo.Op{Asks: []int64{1}}}}
		keys, argv := wire.EncodeBatch(wire.Envelope{}, ops)
		raw, err := st.run(lua.TimedBatch, keys, append(argv, fmt.Sprint(start+1)))
		if err != nil {
			return "", err
		}
		reply, err := wire.DecodeReply(raw, ops)
		return fmt.Sprint(reply.Answers[0].Granted), err
	}
	number := int64(0)
	acquire := func(st store) (string, error) {
		number++
		now++
		m := permits.Message{Process: "p", Number: number, Period: 1_000_000, Ops: []permits.Op{{Want: 1, First: 1, Limit: 5, Procs: 1}}}
		keys, argv := wire.EncodePermits(memoryKey, heldKeys(1), m)
		raw, err := st.run(lua.TimedPermits, keys, append(argv, fmt.Sprint(now)))
		if err != nil {
			return "", err
		}
		a, err := wire.DecodePermits(raw, m)
		return fmt.Sprint(a.Replies[0].Usable), err
	}
	for _, right := range []string{"mget", "hmget", "hgetall", "hlen", "zcard", "zcount", "zrange", "zrangebyscore", "zscore"} {
		redistest.Do(t, admin.rdb, "ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~*", "+@all", "-"+right)
		for _, message := range []struct {
			what string
			send func(store) (string, error)
			want string
		}{{"heartbeat", heartbeat, "2 [1]"}, {"log", ask, "0"}, {"permits", acquire, "0"}} {
			if got, err := message.send(user); err == nil && got != message.want {
				t.Errorf("%s without %s: %s, want %s or an error", message.what, right, got, message.want)
			}
			if got, err := message.send(admin); got != message.want || err != nil {
				t.Errorf("%s after one without %s: %s, %v, want %s", message.what, right, got, err, message.want)
			}
		}
	}
}
