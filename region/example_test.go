package region_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/region"
)

// Two regions share 400 units. All calls are in Europe. Its share is used up first, and then units come from America.
func Example() {
	europe, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer europe.Close()
	america, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer america.Close()
	here := redis.NewClient(&redis.Options{Addr: europe.Addr()})
	defer here.Close()
	there := redis.NewClient(&redis.Options{Addr: america.Addr()})
	defer there.Close()
	hub, err := hybrid.NewHub(here, hybrid.HubConfig{})
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	limiter, err := region.New(hybridlimit.TokenBucket(1, time.Hour, 400), region.Config{
		Name: "api", Here: "eu", Hub: hub, Others: map[string]redis.UniversalClient{"us": there},
	})
	if err != nil {
		panic(err)
	}
	defer limiter.Shutdown(context.Background())

	share, admitted := limiter.Here().Limit().BurstSize(), int64(0)
	for began := time.Now(); admitted <= share && time.Since(began) < time.Minute; {
		res, err := limiter.Allow(context.Background(), "alice")
		if err != nil {
			panic(err)
		}
		if admitted += res.Granted; !res.Allowed {
			time.Sleep(10 * time.Millisecond)
		}
	}
	fmt.Println("the share of Europe:", share)
	fmt.Println("more is admitted:", admitted > share)
	fmt.Println("units came from America:", limiter.Stats().Moved > 0)
	// Output:
	// the share of Europe: 149
	// more is admitted: true
	// units came from America: true
}
