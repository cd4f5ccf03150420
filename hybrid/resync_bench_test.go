package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// BenchmarkResyncPlan measures a search through 100 000 keys for the keys of one lost tag,
// and of all tags.
func BenchmarkResyncPlan(b *testing.B) {
	h, err := NewHub(redistest.New(b).Client(b), HubConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	l, err := h.Limiter(hybridlimit.TokenBucket(1, time.Hour, 100), Config{Name: "api", MaxKeys: 200_000})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100_000 {
		key := fmt.Sprint("k", i)
		at, _ := l.terms.Place(key)
		e := keys.NewEntry(&l.terms, key)
		e.Link.Tag = uint16(at.Tag)
		e.Plan.Store(at.Plan)
		charge(e)
		e.Freeze(time.Time{})
		var a ratesync.Answer
		a.Born = 1
		e.Settle(a)
		l.terms.Store.Add(e, 0)
	}
	all := map[int]bool{}
	for tag := range h.cfg.Tags {
		all[tag] = false
	}
	for name, lost := range map[string]map[int]bool{"one": {0: false}, "all": all} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				h.resync.Plan(lost)
			}
			keys := 0
			for _, g := range h.resync.Work {
				keys += len(g.Entries)
			}
			b.ReportMetric(float64(keys), "keys")
			h.resync.Work = nil
		})
	}
}
