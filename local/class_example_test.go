package local_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// Exports leave a fifth of the burst. Payments find it.
func ExampleLimiter_Class() {
	api, err := local.New(hybridlimit.TokenBucket(1, time.Hour, 10), local.Config{
		Classes: []local.Class{{Name: "export", Floor: 0.2}},
	})
	if err != nil {
		panic(err)
	}
	export, err := api.Class("export")
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	res, err := export.AllowN(ctx, "shop-17", 8)
	fmt.Println("export:", res.Allowed, "limit", res.Limit, err)
	res, err = export.Allow(ctx, "shop-17")
	fmt.Println("export:", res.Allowed, err)
	res, err = api.AllowN(ctx, "shop-17", 2)
	fmt.Println("payment:", res.Allowed, err)
	// Output:
	// export: true limit 8 <nil>
	// export: false <nil>
	// payment: true <nil>
}

// While no payments come, exports use the whole rate: a floor costs burst, not
// rate.
func ExampleLimiter_Class_wholeRate() {
	api, err := local.New(hybridlimit.TokenBucket(1000, time.Second, 10), local.Config{
		Classes: []local.Class{{Name: "export", Floor: 0.2}},
	})
	if err != nil {
		panic(err)
	}
	export, err := api.Class("export")
	if err != nil {
		panic(err)
	}
	began := time.Now()
	for range 108 { // 8 at once, and 100 as they come back
		if _, err := export.Wait(context.Background(), "shop-17", 1); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(began) > 99*time.Millisecond)
	// Output: true
}

// An adapter takes the name of the class from a request. A name that is not
// known is never critical.
func ExampleLimiter_ForClass() {
	api, err := local.New(hybridlimit.PerSecond(1000), local.Config{
		Classes: []local.Class{{Name: "export", Floor: 0.2}},
	})
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"critical", "export", "root"} {
		res, err := api.ForClass(name).Allow(context.Background(), name)
		fmt.Println(name, res.Limit, err)
	}
	// Output:
	// critical 1000 <nil>
	// export 800 <nil>
	// root 800 <nil>
}
