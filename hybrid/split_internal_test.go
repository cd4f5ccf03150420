package hybrid

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/split"
	"github.com/hybridlimit/hybridlimit/internal/parts"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// TestAPartIsLeftOnlyWithoutDebts lets a process owe units to a part of a key, or hold leased ones, and asks it to use
// the other part. It stays until Redis knows of the owed units, and has the others back. So it has credit in one part
// only.
func TestAPartIsLeftOnlyWithoutDebts(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeDeferred, ModeStrict} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				l, err := New(link.Client(nil), hybridlimit.TokenBucket(2, time.Hour, 2000), Config{
					Name: "api", Mode: mode, Split: func(string) int { return 2 },
					Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)},
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { l.Close() })
				time.Sleep(3 * time.Second)
				took := int64(0)
				use := func(n int) {
					for range n {
						res, err := l.Allow(context.Background(), "k")
						if err != nil || !res.Allowed {
							t.Fatalf("%+v, %v", res, err)
						}
						took++
						time.Sleep(10 * time.Millisecond)
					}
				}
				use(100)
				at, ok := l.terms.Known("k")
				if !ok || at.Plan.Part.Of != 2 {
					t.Fatalf("%+v", at)
				}
				look := split.Look{Key: "k", From: at.Plan.Part, To: parts.Part{Nth: 3 - at.Plan.Part.Nth, Of: 2}}
				link.Pause()
				if mode == ModeDeferred {
					use(5)
				}
				for range 10 {
					if l.terms.Go(look) {
						s := l.Stats()
						t.Fatalf("left a part to which it owes %d units, and of which it holds %d", s.Owed, s.Held)
					}
					time.Sleep(10 * time.Millisecond)
				}
				link.Resume()
				for tries := 0; !l.terms.Go(look); tries++ {
					if tries == 100 {
						t.Fatalf("stays in its part: %+v", l.Stats())
					}
					time.Sleep(20 * time.Millisecond)
				}
				raw, err := b.Client(nil).Get(t.Context(), l.terms.InRedis(at)).Result()
				if state, ok := wire.DecodeState(raw); err != nil || !ok || state.Since != took {
					t.Errorf("%d units were used, and Redis has %+v, %v", took, state, err)
				}
				use(1)
				if now, ok := l.terms.Known("k"); !ok || now.Plan.Part != look.To || now.Tag == at.Tag {
					t.Errorf("uses %+v, want %+v", now.Plan.Part, look.To)
				}
			})
		})
	}
}
