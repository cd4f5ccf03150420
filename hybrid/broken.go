package hybrid

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// This file decides when Redis counts as away: the breaker is not closed, or Redis refuses the syncs of a tag. It also has the
// reaction to another process that uses this process's identity.

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

// renamed is called by the sync engine when another process sends syncs under this process's identity. That process may send
// heartbeats under it too. The fleet would then count two processes as one, so this process's heartbeats get a new identity. The
// record of the old identity expires in Redis.
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
