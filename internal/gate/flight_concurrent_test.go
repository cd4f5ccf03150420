package gate

import (
	"runtime"
	"sync"
	"testing"
)

// Requests side by side do not see each other's marks, and leave none. Handlers of one request may run side by side too.
func TestFlightsConcurrent(t *testing.T) {
	limit := &Limit{Limiter: new(funcLimiter)}
	shared := FlightOf(map[string][]string{}, map[string][]string{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				fields, answer := map[string][]string{}, map[string][]string{}
				own := FlightOf(fields, answer)
				for _, f := range []Flight{own, shared} {
					p := Part{Limit: limit, Key: "k", N: 1}
					if left := f.Rest(&p); f == own && !left {
						t.Error("another request has counted")
					}
					outer := f.Begin([]Part{{Limit: limit, Key: "k", N: 1}}, nil)
					if p = (Part{Limit: limit, Key: "k", N: 1}); f.Rest(&p) {
						t.Error("the request has not counted")
					}
					inner := f.Begin(nil, nil)
					f.End(inner)
					f.End(outer)
				}
				runtime.KeepAlive(fields)
				runtime.KeepAlive(answer)
			}
		})
	}
	wg.Wait()
	for i := range flights {
		if len(flights[i].marks) != 0 {
			t.Errorf("shard %d has %d marks", i, len(flights[i].marks))
		}
	}
}
