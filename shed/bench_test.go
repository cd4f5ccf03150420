package shed_test

import (
	"context"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/hybridlimit/hybridlimit/shed"
)

// BenchmarkAcquire compares a call of the Shedder with one of failsafe-go's limiter
// alone. Each is acquired and released.
func BenchmarkAcquire(b *testing.B) {
	s, err := shed.New(shed.Config{Classes: classes, Healthy: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	for _, class := range []string{"critical", "read"} {
		b.Run(class, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, _, _ := s.Acquire(ctx, class)
				p.Release()
			}
		})
	}
	b.Run("failsafe-go", func(b *testing.B) {
		l := adaptivelimiter.NewBuilder[any]().WithLimits(20, 200, 200).Build()
		b.ReportAllocs()
		for b.Loop() {
			p, _ := l.TryAcquirePermit()
			p.Record()
		}
	})
}
