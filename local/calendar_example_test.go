package local_test

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// Each customer has a billing day. The unused units of the last bill are added to the limit.
func ExampleConfig_limitFor_rollover() {
	bills := map[string]struct {
		day          uint16
		rate, unused int64
	}{
		"acme":  {day: 15, rate: 1000, unused: 250},
		"zenit": {day: 31, rate: 1000},
	}
	limiter, err := local.New(hybridlimit.CalendarWindow(1, hybridlimit.Calendar{Unit: hybridlimit.Month}), local.Config{
		LimitFor: func(key string) hybridlimit.Limit {
			bill, ok := bills[key]
			if !ok {
				return hybridlimit.Blocked()
			}
			return hybridlimit.CalendarWindow(bill.rate+bill.unused,
				hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin", Anchor: bill.day})
		},
	})
	if err != nil {
		panic(err)
	}
	for _, customer := range []string{"acme", "zenit", "nobody"} {
		res, err := limiter.AllowN(context.Background(), customer, 200)
		fmt.Println(customer, res.Allowed, res.Remaining, err)
	}
	// Output:
	// acme true 1050 <nil>
	// zenit true 800 <nil>
	// nobody false 0 <nil>
}
