package gate

import (
	"fmt"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// tiers is a limiter whose limit per minute is the key.
type tiers struct{ hybridlimit.Limiter }

func (tiers) Name() string { return "api" }

func (tiers) Policy(key string) hybridlimit.Policy {
	var n int64
	fmt.Sscan(key, &n)
	return hybridlimit.Policy{Name: "api", Limit: hybridlimit.PerMinute(n)}
}

// With a limit per key there is an item per key: the items are right, and only a
// bounded number is kept.
func TestItemsAreBounded(t *testing.T) {
	const keys = 10 * maxItems
	items := NewItems(&Limit{Limiter: tiers{}})
	for i := 1; i <= keys; i++ {
		it := items.Of(&Part{Key: fmt.Sprint(i), Res: hybridlimit.Result{Source: hybridlimit.SourceLocal}})
		if want := fmt.Sprintf(`"api";q=%d;w=60`, i); it.Policy != want {
			t.Errorf("%q, want %q", it.Policy, want)
		}
	}
	if n := len(*items.written.Load()); n != maxItems {
		t.Errorf("%d items are kept, want %d", n, maxItems)
	}
}
