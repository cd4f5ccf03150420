package httplimit

import (
	"fmt"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
	"github.com/hybridlimit/hybridlimit/local"
)

// With a limit per key there is an item per key: the items are right, and only a
// bounded number is kept.
func TestItemsAreBounded(t *testing.T) {
	const keys = 10 * maxItems
	l, err := local.New(hybridlimit.PerMinute(1), local.Config{Name: "api", LimitFor: func(key string) hybridlimit.Limit {
		var n int64
		fmt.Sscan(key, &n)
		return hybridlimit.PerMinute(n)
	}})
	if err != nil {
		t.Fatal(err)
	}
	made, _ := newLimit(0, Limit{Limiter: l}, &gate.Limit{Limiter: l})
	for i := 1; i <= keys; i++ {
		it := made.item(&gate.Part{Key: fmt.Sprint(i)}, nil)
		if want := fmt.Sprintf(`"api";q=%d;w=60`, i); it.Policy != want {
			t.Errorf("%q, want %q", it.Policy, want)
		}
	}
	if n := len(*made.written.Load()); n != maxItems {
		t.Errorf("%d items are kept, want %d", n, maxItems)
	}
}
