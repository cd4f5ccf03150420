package notice_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// BenchmarkAllow compares a call with and without a Limiter of this package, below the lowest threshold and above.
func BenchmarkAllow(b *testing.B) {
	for name, limit := range map[string]hybridlimit.Limit{"below": hybridlimit.FixedWindow(1e15, time.Hour), "above": hybridlimit.FixedWindow(1, time.Hour)} {
		bare, err := local.New(limit, local.Config{})
		if err != nil {
			b.Fatal(err)
		}
		watched, err := notice.New(bare, notice.Config{On: func(notice.Crossing) {}})
		if err != nil {
			b.Fatal(err)
		}
		defer watched.Close()
		for kind, l := range map[string]hybridlimit.Limiter{"bare": bare, "watched": watched} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				for b.Loop() {
					if _, err := l.Allow(b.Context(), "customer-17"); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
