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
	one := useOf(HTTP, l)
	if useOf(HTTP, l) != one || useOf(HTTP, new(limiter)) == one {
		t.Error("the use of a limiter is not its own")
	}
	if first, second := useOf(HTTP, funcLimiter{}), useOf(HTTP, funcLimiter{}); first == second {
		t.Error("limiters that cannot be compared share a use")
	}
	runtime.KeepAlive(one)
	one, l = nil, nil
	runtime.GC()
	useOf(HTTP, new(limiter))
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
