package region_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/region"
)

// TestRegionsConcurrently calls the limiters of two regions from many goroutines, while their limit changes, they are
// looked at, and one of them is closed.
func TestRegionsConcurrently(t *testing.T) {
	servers := []*redistest.Server{redistest.New(t), redistest.New(t)}
	var ls []*region.Limiter
	for i, here := range []string{"a", "b"} {
		hub, err := hybrid.NewHub(servers[i].Client(t), hybrid.HubConfig{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { hub.Close() })
		other := map[string]redis.UniversalClient{[]string{"b", "a"}[i]: servers[1-i].Client(t)}
		l, err := region.New(hybridlimit.PerSecond(200), region.Config{Name: "api", Here: here, Hub: hub, Others: other})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		ls = append(ls, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := ls[g%2].Allow(context.Background(), fmt.Sprint("k", i%5)); err != nil && !errors.Is(err, hybridlimit.ErrClosed) {
					t.Error(err)
				}
				if i%64 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	all.Go(func() {
		for i := int64(0); ctx.Err() == nil; i++ {
			for _, l := range ls {
				if err := l.SetLimit(hybridlimit.PerSecond(200 + i%3)); err != nil && !errors.Is(err, hybridlimit.ErrClosed) {
					t.Error(err)
				}
				l.Stats()
				l.Policy("k0")
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	time.Sleep(5 * time.Second)
	if err := ls[1].Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
	if s := ls[0].Stats(); s.Asks == 0 {
		t.Errorf("%+v: no units were asked for", s)
	}
}
