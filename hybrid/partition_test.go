package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestPartition cuts k of N processes off from Redis. Each of these uses its share, and the
// others use the whole limit, so the fleet admits k/N of the limit more.
func TestPartition(t *testing.T) {
	const n, rate, burst, seconds = 4, 100, 100, 10
	for _, away := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := redistest.NewBubble(t)
			var links []*redistest.MemLink
			var ls []*hybrid.Limiter
			for range n {
				link := b.Link()
				links = append(links, link)
				ls = append(ls, newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(rate, time.Second, burst), hybrid.Config{Mode: hybrid.ModeStrict}))
			}
			time.Sleep(2100 * time.Millisecond)
			load := func(d time.Duration) (units, without int64) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
					for _, l := range ls {
						if res := ask(t, l, "k", 1); res.Allowed {
							units++
							if res.Source == hybridlimit.SourceFallback {
								without++
							}
						}
					}
				}
				return units, without
			}
			load(2 * time.Second)
			for _, link := range links[:away] {
				link.Refuse(true)
				link.CutAll()
			}
			load(5 * time.Second) // breakers open, and the other processes count a smaller fleet
			units, without := load(seconds * time.Second)
			share := int64(rate * seconds * away / n)
			if most := int64(rate*seconds+burst) + share + int64(burst*away/n); units > most || units < (rate*seconds+share)*9/10 {
				t.Errorf("%d of %d processes cut off: %d units in %d s of %d/s, want %d to %d", away, n, units, seconds, rate, (rate*seconds+share)*9/10, most)
			}
			if most := share + int64(burst*away/n); without > most || without < share*9/10 {
				t.Errorf("%d of %d processes cut off: %d units without Redis, want %d to %d", away, n, without, share*9/10, most)
			}
		})
	}
}
