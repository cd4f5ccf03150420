package hybrid

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
)

// identity decides whether two limiters share state in Redis: they do if their identities are equal.
type identity struct {
	client redis.UniversalClient
	prefix string
	name   string
}

// identity returns the identity of a limiter of the hub.
func (h *Hub) identity(name string) identity { return identity{h.client, h.cfg.Prefix, name} }

// claims holds the limits in use, so that one program cannot use two different limits under one identity by mistake. The client
// stands for the Redis behind it. Two programs, or two clients, may differ during a rollout.
var claims = struct {
	sync.Mutex
	held map[identity]*claimed
}{held: map[identity]*claimed{}}

// shareOne is the remedy for two limiters of one name in a program. Two hubs with clients of their own cannot be told from
// two programs, nor from a fleet in a test, so nothing reports them.
const shareOne = "make one *hybrid.Hub, and share the limiter that Hub.Limiter returns"

type claimed struct {
	limit hybridlimit.Limit
	count int
}

// claim notes that a limiter uses limit under id, until release.
func claim(id identity, limit hybridlimit.Limit) (release func(), err error) {
	if !reflect.ValueOf(id.client).Comparable() {
		return func() {}, nil // a wrapper that is not comparable cannot be a map key
	}
	claims.Lock()
	defer claims.Unlock()
	c := claims.held[id]
	if c == nil {
		c = &claimed{limit: limit}
		claims.held[id] = c
	}
	if c.limit != limit {
		var bad hybridlimit.Violations
		bad.Add("Limit", limit.String(), fmt.Sprintf(
			"differs from the limit of %q with prefix %q that is in use already: %v; %s", id.name, id.prefix, c.limit, shareOne))
		return nil, bad.Err("hybrid")
	}
	c.count++
	return func() {
		claims.Lock()
		defer claims.Unlock()
		if c.count--; c.count == 0 {
			delete(claims.held, id)
		}
	}, nil
}

// reclaim changes the limit under id. It fails if another limiter uses id too.
func reclaim(id identity, limit hybridlimit.Limit) error {
	if !reflect.ValueOf(id.client).Comparable() {
		return nil
	}
	claims.Lock()
	defer claims.Unlock()
	c := claims.held[id]
	if c == nil {
		return nil // closed meanwhile
	}
	if c.limit != limit && c.count > 1 {
		var bad hybridlimit.Violations
		bad.Add("Limit", limit.String(), fmt.Sprintf(
			"cannot replace the limit of %q with prefix %q, which %d limiters of this program share: %v; %s",
			id.name, id.prefix, c.count, c.limit, shareOne))
		return bad.Err("hybrid")
	}
	c.limit = limit
	return nil
}
