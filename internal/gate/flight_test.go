package gate

import (
	"runtime"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// funcLimiter cannot be compared.
type funcLimiter struct {
	hybridlimit.Limiter
	_ func()
}

// Adapters with one limiter share its use. The list of uses keeps no limiter.
func TestUseOf(t *testing.T) {
	type limiter struct {
		hybridlimit.Limiter
		_ [1 << 10]byte
	}
	l := new(limiter)
	one := UseOf(l)
	if UseOf(l) != one || UseOf(new(limiter)) == one {
		t.Error("the use of a limiter is not its own")
	}
	if UseOf(funcLimiter{}) == UseOf(funcLimiter{}) {
		t.Error("limiters that cannot be compared share a use")
	}
	runtime.KeepAlive(one)
	one, l = nil, nil
	runtime.GC()
	UseOf(new(limiter))
	uses.mu.Lock()
	defer uses.mu.Unlock()
	live := 0
	for _, p := range uses.all {
		if p.Value() != nil {
			live++
		}
	}
	if live > 1 {
		t.Errorf("%d uses are kept", live)
	}
}

// A flight ends without a trace, also if handlers of one request end in another order.
func TestFlightEnds(t *testing.T) {
	fields, answer := map[string][]string{}, map[string][]string{}
	f := FlightOf(fields, answer)
	limit := &Limit{Limiter: funcLimiter{}}
	part := func(n int64) *Part { return &Part{Limit: limit, Key: "k", N: n} }
	if !f.Rest(part(1)) {
		t.Error("a request without a mark has counted")
	}
	first := f.Begin([]Part{*part(1)}, nil)
	second := f.Begin([]Part{*part(3)}, nil)
	f.End(first)
	f.End(second)
	if s := &flights[f.shard()]; len(s.marks) != 0 {
		t.Errorf("%d marks are left", len(s.marks))
	}
	runtime.KeepAlive(fields)
	runtime.KeepAlive(answer)
}
