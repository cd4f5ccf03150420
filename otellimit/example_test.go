package otellimit_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/otellimit"
)

// A local limiter whose decisions go to the program's metrics.
func ExampleRecorder_Wrap() {
	provider := noop.NewMeterProvider() // the program's own
	recorder, err := otellimit.NewRecorder(otellimit.Config{MeterProvider: provider})
	if err != nil {
		panic(err)
	}
	defer recorder.Close()
	uploads, err := local.New(hybridlimit.PerMinute(1), local.Config{Name: "uploads"})
	if err != nil {
		panic(err)
	}
	limiter, err := recorder.Wrap("uploads", uploads) // for example for httplimit
	if err != nil {
		panic(err)
	}
	for range 2 {
		res, err := limiter.Allow(context.Background(), "alice")
		fmt.Println(res.Allowed, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
