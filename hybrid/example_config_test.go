package hybrid_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

func ExampleConfig_limitFor() {
	limiter, stop := start(hybridlimit.PerHour(5), hybrid.Config{
		Name: "api",
		LimitFor: func(key string) hybridlimit.Limit {
			if key == "vip" {
				return hybridlimit.PerHour(50)
			}
			return hybridlimit.PerHour(5)
		},
	})
	defer stop()

	for _, key := range []string{"alice", "vip"} {
		res, err := limiter.Allow(context.Background(), key)
		fmt.Println(key, res.Limit, err)
	}
	// Output:
	// alice 5 <nil>
	// vip 50 <nil>
}

// One customer is as hot as all others together, in thousands of processes. On a cluster, four masters share the ops of
// that key. Each part has a quarter of the limit, and each process uses one part.
func ExampleConfig_split() {
	limiter, stop := start(hybridlimit.PerSecond(40_000), hybrid.Config{
		Name: "api",
		Split: func(key string) int {
			if key == "acme" {
				return 4
			}
			return 1
		},
	})
	defer stop()

	for _, key := range []string{"alice", "acme"} {
		most, err := limiter.AllowN(context.Background(), key, 10_000)
		more, err2 := limiter.AllowN(context.Background(), key, 10_001)
		fmt.Println(key, most.Limit, most.Allowed, err, more.Allowed, err2)
	}
	// Output:
	// alice 40000 true <nil> true <nil>
	// acme 40000 true <nil> false <nil>
}

// A customer buys a larger plan. Without Invalidate, each process would ask LimitFor within LimitRefresh, a minute.
func ExampleLimiter_Invalidate() {
	var plans sync.Map // in practice a table, or a cache of one
	plans.Store("acme", hybridlimit.PerHour(5))
	limiter, stop := start(hybridlimit.PerHour(1), hybrid.Config{
		Name: "api",
		LimitFor: func(key string) hybridlimit.Limit {
			if limit, ok := plans.Load(key); ok {
				return limit.(hybridlimit.Limit)
			}
			return hybridlimit.PerHour(1)
		},
	})
	defer stop()

	res, err := limiter.AllowN(context.Background(), "acme", 3)
	fmt.Println(res.Remaining, "of", res.Limit, err)

	plans.Store("acme", hybridlimit.PerHour(500))
	if err := limiter.Invalidate("acme"); err != nil { // for example with a message of the billing service
		fmt.Println(err)
	}
	res, err = limiter.AllowN(context.Background(), "acme", 1) // used units stay used
	fmt.Println(res.Remaining, "of", res.Limit, err)
	// Output:
	// 2 of 5 <nil>
	// 1 of 500 <nil>
}

// The plan is part of the key, so that the key alone decides the limit.
func ExampleConfig_limitFor_plans() {
	plans := map[string]hybridlimit.Limit{
		"free": hybridlimit.PerHour(2),
		"pro":  hybridlimit.PerHour(100),
	}
	limiter, stop := start(plans["free"], hybrid.Config{
		Name: "api",
		LimitFor: func(key string) hybridlimit.Limit {
			plan, _, _ := strings.Cut(key, "/")
			if limit, ok := plans[plan]; ok {
				return limit
			}
			return plans["free"]
		},
	})
	defer stop()

	for _, key := range []string{"free/alice", "pro/bob", "old/carol"} {
		res, err := limiter.AllowN(context.Background(), key, 3)
		fmt.Println(key, res.Allowed, "of", res.Limit, err)
	}
	// Output:
	// free/alice false of 2 <nil>
	// pro/bob true of 100 <nil>
	// old/carol false of 2 <nil>
}

func ExampleConfig_subject() {
	limiter, stop := start(hybridlimit.PerHour(5), hybrid.Config{
		Name:  "api",
		TagBy: func(key string) string { return strings.SplitN(key, "/", 2)[0] },
	})
	defer stop()

	for _, key := range []string{"alice/read", "alice/write"} { // one slot, a bucket each
		res, err := limiter.Allow(context.Background(), key)
		fmt.Println(key, res.Remaining, err)
	}
	// Output:
	// alice/read 4 <nil>
	// alice/write 4 <nil>
}

// All keys of a tenant share one slot of a cluster. So their syncs go in one
// message, to one server.
func ExampleConfig_subject_tenant() {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	slots := func(name string, subject func(string) string) int {
		limiter, err := hybrid.New(rdb, hybridlimit.PerHour(5), hybrid.Config{Name: name, Mode: hybrid.ModeExact, TagBy: subject})
		if err != nil {
			panic(err)
		}
		defer limiter.Close()
		for i := range 50 {
			if _, err := limiter.Allow(context.Background(), fmt.Sprintf("tenant-7/user-%d", i)); err != nil {
				panic(err)
			}
		}
		tags := map[string]bool{}
		for _, key := range rdb.Keys(context.Background(), "*"+name+"*user*").Val() {
			_, rest, _ := strings.Cut(key, "{")
			tag, _, _ := strings.Cut(rest, "}")
			tags[tag] = true
		}
		return len(tags)
	}
	fmt.Println(slots("spread", nil) > 1)
	fmt.Println(slots("together", func(key string) string { return strings.SplitN(key, "/", 2)[0] }))
	// Output:
	// true
	// 1
}

func ExampleConfig_shadow() {
	limiter, stop := start(hybridlimit.PerHour(1), hybrid.Config{Name: "api", Shadow: true})
	defer stop()

	for range 2 {
		res, err := limiter.Allow(context.Background(), "alice")
		fmt.Println(res.Allowed, res.Shadowed, err)
	}
	// Output:
	// true false <nil>
	// true true <nil>
}

// A dark launch: today's limit decides. Tomorrow's narrower limit runs in
// shadow, and reports the calls that it would deny.
func ExampleConfig_shadow_darkLaunch() {
	today, stop := start(hybridlimit.PerHour(5), hybrid.Config{Name: "today"})
	defer stop()
	tomorrow, err := today.Hub().Limiter(hybridlimit.PerHour(3), hybrid.Config{Name: "tomorrow", Shadow: true, MaxWait: 10e9})
	if err != nil {
		panic(err)
	}

	var allowed, would int
	for range 7 {
		res, err := hybridlimit.AllowAll(context.Background(),
			hybridlimit.Ask{Limiter: today, Key: "alice", N: 1},
			hybridlimit.Ask{Limiter: tomorrow, Key: "alice", N: 1})
		if err != nil {
			panic(err)
		}
		if res.Allowed {
			allowed++
		}
		if res.Shadowed {
			would++
		}
	}
	fmt.Println(allowed, "went through,", would, "of them will not")
	// Output: 5 went through, 2 of them will not
}

// hubWith returns a hub and its limiters by name, one for each limit.
func hubWith(limits map[string]hybridlimit.Limit) (ls map[string]*hybrid.Limiter, hub *hybrid.Hub, stop func()) {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: quiet, SyncTimeout: 10e9})
	if err != nil {
		panic(err)
	}
	ls = map[string]*hybrid.Limiter{}
	for name, limit := range limits {
		if ls[name], err = hub.Limiter(limit, hybrid.Config{Name: name, MaxWait: 10e9}); err != nil {
			panic(err)
		}
	}
	return ls, hub, func() {
		_ = hub.Close()
		_ = rdb.Close()
	}
}

// A login counts against three limits: per user, per address, and for all
// users. If one limit denies it, the others are not charged.
func ExampleLimiter_AllowJoint_login() {
	limits, _, stop := hubWith(map[string]hybridlimit.Limit{
		"login-user": hybridlimit.PerHour(2),
		"login-addr": hybridlimit.PerHour(3),
		"login-all":  hybridlimit.PerHour(100),
	})
	defer stop()

	for _, user := range []string{"alice", "alice", "alice", "bob", "carol"} {
		res, err := hybridlimit.AllowAll(context.Background(),
			hybridlimit.Ask{Limiter: limits["login-user"], Key: user, N: 1},
			hybridlimit.Ask{Limiter: limits["login-addr"], Key: "192.0.2.1", N: 1},
			hybridlimit.Ask{Limiter: limits["login-all"], Key: "*", N: 1})
		switch {
		case err != nil:
			panic(err)
		case res.Allowed:
			fmt.Println(user, "may try")
		default:
			fmt.Println(user, "is stopped by", res.Policy)
		}
	}
	res, err := limits["login-all"].Peek(context.Background(), "*")
	fmt.Println(res.Remaining, "left for all", err)
	// Output:
	// alice may try
	// alice may try
	// alice is stopped by login-user
	// bob may try
	// carol is stopped by login-addr
	// 97 left for all <nil>
}
