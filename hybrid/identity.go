package hybrid

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
)

// identity is what makes two limiters share state in Redis.
type identity struct {
	client redis.UniversalClient
	prefix string
	name   string
}

// claims holds the limits in use, so that one program does not give a limit
// two sizes by mistake. The client stands for the Redis behind it: two
// programs, or two clients, may disagree during a rollout.
var claims = struct {
	sync.Mutex
	held map[identity]*claimed
}{held: map[identity]*claimed{}}

type claimed struct {
	limit hybridlimit.Limit
	count int
}

// claim notes that a limiter uses limit under id, until release.
func claim(id identity, limit hybridlimit.Limit) (release func(), err error) {
	if !reflect.ValueOf(id.client).Comparable() {
		return func() {}, nil // a wrapper that cannot be told from another
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
			"differs from the limit of %q with prefix %q that is in use already: %v", id.name, id.prefix, c.limit))
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

// reclaim changes the limit under id, unless another limiter uses it too.
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
			"cannot replace the limit of %q with prefix %q, which %d limiters of this program share: %v", id.name, id.prefix, c.count, c.limit))
		return bad.Err("hybrid")
	}
	c.limit = limit
	return nil
}
