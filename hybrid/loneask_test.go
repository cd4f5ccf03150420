package hybrid_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// TestLostLoneAsk loses the replies to messages without an envelope. Redis has debited
// their units once, Stats.Uncertain counts them, and each call is decided all the same.
// Messages that were not executed count there too.
func TestLostLoneAsk(t *testing.T) {
	srv := redistest.New(t)
	for i, tc := range []struct {
		name    string
		verdict redistest.Verdict
		debited bool
	}{
		{"reply lost, connection closed", redistest.DropReply(redistest.ThenClose), true},
		{"reply lost, connection hangs", redistest.DropReply(redistest.ThenHang), true},
		{"request lost", redistest.DropRequest(redistest.ThenClose), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, srv.Addr())
			h := newHub(t, proxy.Client(t), hybrid.HubConfig{
				SyncTimeout: 80 * time.Millisecond,
				Breaker:     breaker.Config{Failures: 1 << 20, FailureRatio: -1, SlowCall: -1}, // syncs are under test
			})
			name := fmt.Sprint("lone", i)
			l := add(t, h, still(1000), hybrid.Config{Name: name, Mode: hybrid.ModeStrict, MaxWait: 10 * time.Second})
			const cost, rounds = 3, 20
			lost := 0
			proxy.Script(func(_ int, cmd []string) redistest.Verdict {
				if !isBare(cmd) {
					return redistest.Forward()
				}
				lost++
				return tc.verdict
			})
			var keys []string
			for r := range rounds { // within two seconds of the first message of a tag, the others of the tag have no envelope
				for j := range 2 {
					key := fmt.Sprintf("k%d-%d", r, j)
					keys = append(keys, key)
					res, err := l.AllowN(context.Background(), key, cost)
					if err != nil || !res.Allowed {
						t.Errorf("%s: %+v, %v", key, res, err)
					}
				}
			}
			s := l.Stats()
			if lost == 0 || s.Uncertain != int64(lost*cost) || s.Admitted != 2*rounds*cost || s.Granted != s.Admitted {
				t.Errorf("%d messages of %d units lost: %+v", lost, cost, s)
			}
			want := s.Granted
			if tc.debited {
				want += s.Uncertain
			}
			if got := debited(t, srv.Client(t), name, keys...); got != want {
				t.Errorf("Redis debited %d, want %d: granted %d, uncertain %d", got, want, s.Granted, s.Uncertain)
			}
			t.Logf("%d of %d messages lost", lost, 2*rounds)
		})
	}
}
