package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const processes = 4

// makeFleet returns limiters of one identity, each with its own client. It
// waits until they know of each other and give credit.
func makeFleet(t *testing.T, srv *redistest.Server, limit hybridlimit.Limit, cfg hybrid.Config) []*hybrid.Limiter {
	t.Helper()
	var ls []*hybrid.Limiter
	for range processes {
		ls = append(ls, newLimiter(t, srv.Client(t), limit, cfg))
	}
	ready(t, ls...)
	redistest.Eventually(t, 30*time.Second, "credit is given", func() bool {
		for _, l := range ls {
			if cfg.Mode != hybrid.ModeStrict && cfg.Mode != hybrid.ModeExact && l.Stats().Credit == 0 {
				return false
			}
		}
		return true
	})
	return ls
}

// TestFleetHoldsItsLimit puts ten times the limit on one hot key of a fleet. TestFleetAdmitsItsLimit measures how much it admits.
func TestFleetHoldsItsLimit(t *testing.T) {
	fleetHoldsItsLimit(t, time.Second, func(*testing.T, *recorder, float64, time.Duration) {})
}

// fleetHoldsItsLimit gives admitted the calls of a time, and the units that the limit has in it.
func fleetHoldsItsLimit(t *testing.T, lasts time.Duration, admitted func(t *testing.T, rec *recorder, could float64, lasted time.Duration)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			limit := hybridlimit.TokenBucket(400, time.Second, 300)
			srv := redistest.New(t)
			// K bounds the credit of ModeDeferred. Without K it would be a
			// third of the burst.
			ls := makeFleet(t, srv, limit, patient(hybrid.Config{Mode: mode, SyncEvery: 30}))
			credit := ls[0].Stats().Credit
			want := map[hybrid.Mode]int64{hybrid.ModeAuto: 300 * 5 / 100 / 3, hybrid.ModeDeferred: 30}[mode]
			if credit != want {
				t.Errorf("a process has a credit of %d, want %d", credit, want)
			}

			rec := newRecorder()
			var stops []func()
			for _, l := range ls {
				stops = append(stops, paced(10*400/processes, 3, func() {
					began := time.Now()
					rec.note(began, ask(t, l, "hot", 1))
				}))
			}
			<-time.After(lasts)
			lasted := time.Since(rec.start)
			for _, stop := range stops {
				stop()
			}

			could := float64(limit.BurstSize()) + 400*lasted.Seconds()
			over, from, to := rec.exceedance(limit)
			t.Logf("%d calls, %d of %.0f units admitted, exceedance %.1f with %d on credit, by source %v",
				rec.asked, rec.total(), could, over, (processes-1)*credit, rec.sources)
			if over > float64((processes-1)*credit) {
				t.Errorf("%.1f units above the limit in (%v, %v], want at most %d", over, from, to, (processes-1)*credit)
			}
			admitted(t, rec, could, lasted)
			if rec.sources[hybridlimit.SourceFallback] > 0 {
				t.Error("the fallback decided some calls")
			}

			shutdown(t, ls...)
			var all []hybrid.Stats
			for _, l := range ls {
				s := l.Stats()
				all = append(all, s)
				if s.Owed != 0 || s.Dropped != 0 || s.Forgiven != 0 {
					t.Errorf("after Shutdown: %+v", s)
				}
			}
			if got := debited(t, srv.Client(t), "api", "hot"); !explained(t, got, all...) {
				t.Errorf("Redis debited %d, and the fleet does not know of them: %+v", got, all)
			}
			if admitted := sum(ls, func(s hybrid.Stats) int64 { return s.Admitted }); admitted != rec.total() {
				t.Errorf("the fleet counts %d units admitted, its callers %d", admitted, rec.total())
			}
		})
	}
}
