package hybrid

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
)

// identity decides whether two limiters share state in Redis: they do if their identities are equal.
type identity struct {
	client redis.UniversalClient
	prefix string
	name   string
}

// identity returns the identity of a limiter of the hub.
func (h *Hub) identity(name string) identity { return identity{h.client, h.cfg.Prefix, name} }

// claims holds the limits in use, so that one program cannot use two different limits under one identity by mistake.
// The client stands for the Redis behind it. Two programs, or two clients, may differ during a rollout.
var claims = struct {
	sync.Mutex
	held map[identity]*claimed
}{held: map[identity]*claimed{}}

// shareOne is the remedy for two limiters of one name in a program. Two hubs with clients of their own cannot be told
// from two programs, nor from a fleet in a test, so nothing reports them.
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
		var bad adapter.Violations
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
		var bad adapter.Violations
		bad.Add("Limit", limit.String(), fmt.Sprintf(
			"cannot replace the limit of %q with prefix %q, which %d limiters of this program share: %v; %s",
			id.name, id.prefix, c.count, c.limit, shareOne))
		return bad.Err("hybrid")
	}
	c.limit = limit
	return nil
}

// The rest of this file decides when Redis counts as away: the breaker is not closed, or Redis refuses the syncs of a
// tag. It also has the reaction to another process that uses this process's identity.

// broken reports whether decisions on a tag must be made without Redis.
func (h *Hub) broken(tag int) bool { return h.state(tag) != breaker.Closed }

// state returns the state of a tag: Open while Redis refuses its syncs, otherwise the state of its breaker.
func (h *Hub) state(tag int) breaker.State {
	if h.engine.Refusing(tag) {
		return breaker.Open
	}
	return h.breaker(tag).State()
}

// worst returns the worst state of all tags.
func (h *Hub) worst() breaker.State {
	worst := breaker.Closed
	for _, b := range h.breakers {
		worst = max(worst, b.State())
	}
	for tag := range h.breakers {
		if worst < breaker.Open && h.engine.Refusing(tag) {
			worst = breaker.Open
		}
	}
	return worst
}

// refusing is called by the sync engine when Redis begins or stops refusing the syncs of a tag.
func (h *Hub) refusing(tag int, refusing bool, err error) {
	h.clock.Void() // budgets may hold credit, which depends on Redis
	if refusing {
		h.log.Event(tell.MsgRefuses, slog.Int("tag", tag), slog.Any("cause", err))
	} else {
		h.log.Event(tell.MsgTakes, slog.Int("tag", tag))
	}
}

// renamed is called by the sync engine when another process sends syncs under this process's identity. That process may
// send heartbeats under it too. The fleet would then count two processes as one, so this process's heartbeats get a new
// identity. The record of the old identity expires in Redis.
func (h *Hub) renamed(tag int) {
	name := newIdentity()
	h.heart.Rename(name)
	h.log.Event(tell.MsgRenamed, slog.Int("tag", tag))
}

// newIdentity returns 128 random bits in hex.
func newIdentity() string {
	var id [16]byte
	rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(id[:])
}
