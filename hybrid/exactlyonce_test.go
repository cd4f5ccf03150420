package hybrid_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/lua"
)

// isSync reports whether a command is a sync that carries an envelope.
func isSync(cmd []string) bool { return isBatch(cmd) && strings.Contains(cmd[3], "@env:") }

// isBare reports whether a command is a sync or a direct call without an envelope.
func isBare(cmd []string) bool { return isBatch(cmd) && !isSync(cmd) }

// isBatch reports whether a command calls lua.Batch.
func isBatch(cmd []string) bool {
	verb := strings.ToUpper(cmd[0])
	return len(cmd) > 3 && cmd[2] != "0" && (verb == "EVALSHA" && cmd[1] == lua.Batch.SHA || verb == "FCALL" && cmd[1] == lua.Library.Batch)
}

// everySync gives the verdict to every nth sync. Heartbeats and the handshake
// pass.
func everySync(nth int, v redistest.Verdict) redistest.Script {
	seen := 0
	return func(_ int, cmd []string) redistest.Verdict {
		if !isSync(cmd) {
			return redistest.Forward()
		}
		if seen++; seen%nth != 0 {
			return redistest.Forward()
		}
		return v
	}
}

// faults are the faults of a network that hit a sync. Redis has executed the
// sync, unless the request was dropped.
var faults = []struct {
	name   string
	script func() redistest.Script
}{
	{"replies dropped, connection closed", func() redistest.Script {
		return everySync(3, redistest.DropReply(redistest.ThenClose))
	}},
	{"replies dropped, connection hangs", func() redistest.Script {
		return everySync(3, redistest.DropReply(redistest.ThenHang))
	}},
	{"requests dropped", func() redistest.Script {
		return everySync(3, redistest.DropRequest(redistest.ThenClose))
	}},
	{"duplicates", func() redistest.Script { return everySync(2, redistest.Duplicate()) }},
	{"requests later than SyncTimeout", func() redistest.Script {
		return everySync(4, redistest.Delay(150*time.Millisecond))
	}},
	{"replies later than SyncTimeout", func() redistest.Script {
		return everySync(4, redistest.DelayReply(150*time.Millisecond))
	}},
	{"all of it", func() redistest.Script {
		verdicts := []redistest.Verdict{
			redistest.DropReply(redistest.ThenClose), redistest.Forward(), redistest.Duplicate(),
			redistest.DropReply(redistest.ThenHang), redistest.Delay(120 * time.Millisecond), redistest.Forward(),
			redistest.DropRequest(redistest.ThenClose), redistest.DelayReply(120 * time.Millisecond), redistest.Forward(),
			redistest.DropRequest(redistest.ThenHang),
		}
		n := 0
		return func(_ int, cmd []string) redistest.Verdict {
			if !isSync(cmd) {
				return redistest.Forward()
			}
			n++
			return verdicts[n%len(verdicts)]
		}
	}},
}

// TestExactlyOnce compares the units counted on both sides of a network that
// loses, repeats and delays messages with envelopes, with go-redis at its default
// retries. Three limiters share the messages.
func TestExactlyOnce(t *testing.T) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) { exactlyOnce(t, functions) })
	}
}

// missing returns the units that the buckets lack. A bucket that is full again leaves no state after a second. If an op that
// has filled it arrives once more after that, the op's view restores the bucket from before, and the units are in its level
// alone, not in the units debited since.
func missing(tb testing.TB, rdb redis.UniversalClient, limit hybridlimit.Limit, name string, keys ...string) (units int64) {
	tb.Helper()
	for _, k := range keys {
		if s := inRedis(tb, rdb, name, k); s.Born != 0 {
			units += limit.BurstSize() - s.Level/s.Unit
		}
	}
	return units
}

func exactlyOnce(t *testing.T, functions bool) {
	const burst = 100_000 // of buckets that do not refill
	srv, verb := redistest.New(t), "EVALSHA"
	if functions {
		redistest.NeedFunctions(t, srv.Client(t))
		verb = "FCALL"
	}
	for i, f := range faults {
		if functions && i < len(faults)-1 && !testenv.Long() {
			continue // the same batches under another name
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, srv.Addr())
			h := newHub(t, proxy.Client(t), hybrid.HubConfig{
				SyncTimeout: 80 * time.Millisecond, Functions: functions,
				// The breaker holds back no sync: syncs are under test.
				Breaker: breaker.Config{Failures: 1 << 20, FailureRatio: -1, SlowCall: -1},
			})
			var ls []*hybrid.Limiter
			for _, mode := range modes[:3] {
				ls = append(ls, add(t, h, still(burst), hybrid.Config{
					Name: fmt.Sprintf("%v-%d", mode, i), // the faults share a server, so each has its own names
					Mode: mode, SyncEvery: 50, SyncInterval: 10 * time.Millisecond,
				}))
			}
			if err := h.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			proxy.Script(f.script())
			// One key is in use all the time, others now and then.
			keys := keysOf("k", 8)
			var stops []func()
			for _, l := range ls {
				calls := 0
				stops = append(stops, paced(400, 1, func() {
					key := keys[0]
					if calls++; calls%4 == 0 {
						key = keys[calls/4%len(keys)]
					}
					if _, err := l.AllowN(context.Background(), key, 1+int64(calls%2)); err != nil {
						t.Errorf("Allow: %v", err)
					}
				}))
			}
			syncs, units := uint64(40), int64(120)
			if testenv.Full() {
				syncs, units = 100, 300
			}
			redistest.Eventually(t, 60*time.Second, "enough syncs, and units of each limiter", func() bool {
				for _, l := range ls {
					if l.Stats().Admitted < units {
						return false
					}
				}
				return h.Stats().Ops > syncs
			})
			for _, stop := range stops {
				stop()
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := h.Shutdown(ctx); err != nil {
				t.Error(err)
			}

			for j, l := range ls {
				s := l.Stats()
				if s.Owed != 0 || s.Dropped != 0 || s.Forgiven != 0 {
					t.Errorf("%v: after Shutdown: %+v", modes[j], s)
				}
				got := missing(t, srv.Client(t), still(burst), fmt.Sprintf("%v-%d", modes[j], i), keys...)
				// Messages without an envelope meet no fault here, but the machine may be slow.
				if !explained(t, got, s) {
					t.Errorf("%v: Redis debited %d, and the limiter does not know of them: %+v", modes[j], got, s)
				}
				if want := s.Admitted + s.Expired + s.Lost; got < want || got > want+s.Uncertain {
					t.Errorf("%v: Redis debited %d, want %d = admitted %d + expired %d + lost %d, and up to %d uncertain",
						modes[j], got, want, s.Admitted, s.Expired, s.Lost, s.Uncertain)
				}
				t.Logf("%v: admitted %d, expired %d, lost %d, uncertain %d", modes[j], s.Admitted, s.Expired, s.Lost, s.Uncertain)
			}
			st, sent := h.Stats(), proxy.Count(verb)
			if st.Failures == 0 && sent.Forwarded == sent.Seen || st.Refused > 0 {
				t.Errorf("the network did not fail as it should have: %+v, %+v", st, sent)
			}
			t.Logf("%d messages, %d without an answer, %d answered at a later try", st.Messages, st.Failures, st.Seen)
		})
	}
}
