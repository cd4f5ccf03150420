package notice_test

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// A customer is told at 80 % of the calls of a month, and when none is left.
func ExampleNew() {
	limiter, err := local.New(hybridlimit.CalendarWindow(10, hybridlimit.Calendar{Unit: hybridlimit.Month}), local.Config{Name: "calls"})
	if err != nil {
		panic(err)
	}
	watched, err := notice.New(limiter, notice.Config{On: func(c notice.Crossing) {
		// Store c.ID in a table with a unique index, and mail if it is new.
		fmt.Printf("%s has used %d of %d %s: %.0f %%\n", c.Key, c.Used, c.Limit, c.Limiter, 100*c.At)
	}})
	if err != nil {
		panic(err)
	}
	for range 12 {
		if _, err := watched.Allow(context.Background(), "customer-17"); err != nil {
			panic(err)
		}
	}
	if err := watched.Close(); err != nil { // tells what is untold
		panic(err)
	}
	// Output:
	// customer-17 has used 8 of 10 calls: 80 %
	// customer-17 has used 10 of 10 calls: 100 %
}
