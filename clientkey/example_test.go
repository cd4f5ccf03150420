package clientkey_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/local"
)

// one is a limiter of 1000 an hour, with another limit for one key.
func one(key string, limit hybridlimit.Limit) *local.Limiter {
	l, err := local.New(hybridlimit.PerHour(1000), local.Config{Name: "demo", LimitFor: func(k string) hybridlimit.Limit {
		if k == key {
			return limit
		}
		return hybridlimit.PerHour(1000)
	}})
	if err != nil {
		log.Fatal(err)
	}
	return l
}

// show asks a limiter for a key.
func show(l *local.Limiter, key string) {
	res, err := l.Allow(context.Background(), key)
	fmt.Println(key, res.Limit, err)
}

// A limit for a user behind httplimit.User or grpclimit.User.
func ExampleUser() {
	l := one(clientkey.User("", "alice"), hybridlimit.PerHour(5))
	show(l, clientkey.User("", "alice"))
	show(l, clientkey.User("", "bob"))
	// Output:
	// user:alice 5 <nil>
	// user:bob 1000 <nil>
}

// A limit for an API key behind httplimit.APIKey, or grpclimit.Metadata("x-api-key", "").
func ExampleAPIKey() {
	l := one(clientkey.APIKey("", "X-Api-Key", "k-123"), hybridlimit.PerHour(5))
	show(l, clientkey.APIKey("", "X-Api-Key", "k-123"))
	// Output:
	// apikey:JSRdwAEt0BiIl5WGdBPzYg 5 <nil>
}

// A limit for a token behind httplimit.Bearer or grpclimit.Bearer.
func ExampleBearer() {
	l := one(clientkey.Bearer("", "token"), hybridlimit.PerHour(5))
	show(l, clientkey.Authorization("", "Bearer token"))
	// Output:
	// bearer:PEaenWxYddN6Q_NT1PiOYQ 5 <nil>
}

// A limit for a route behind httplimit.Pattern, and for a method behind grpclimit.Method.
func ExampleRoute() {
	show(one(clientkey.Route("GET /users/{id}"), hybridlimit.PerHour(5)), clientkey.Route("GET /users/{id}"))
	show(one(clientkey.Route("/shop.Orders/List"), hybridlimit.PerHour(6)), clientkey.Route("/shop.Orders/List"))
	// Output:
	// route:GET /users/{id} 5 <nil>
	// route:/shop.Orders/List 6 <nil>
}

// A limit for an address behind httplimit.PeerIP or grpclimit.Peer.
func ExampleIP() {
	office := netip.MustParseAddr("2001:db8::7")
	show(one(clientkey.IP(office), hybridlimit.PerHour(5)), clientkey.IP(office))
	// Output:
	// ip:2001:db8::/64 5 <nil>
}

// A limit for a user on a route, behind Join.
func ExampleJoin() {
	key := clientkey.Join(clientkey.User("", "alice"), clientkey.Route("GET /users/{id}"))
	show(one(key, hybridlimit.PerHour(5)), key)
	// Output:
	// user:alice|route:GET /users/{id} 5 <nil>
}
