package hybrid

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// This file is when decisions do without Redis: its breaker is not closed, or
// Redis refuses what a slot's syncs carry. And what a process does when another
// uses its identity.

// broken reports whether decisions on a tag must do without Redis.
func (h *Hub) broken(tag int) bool { return h.state(tag) != breaker.Closed }

// state is a tag's: that of its breaker, or Open while Redis refuses its syncs.
func (h *Hub) state(tag int) breaker.State {
	if h.engine.Refusing(tag) {
		return breaker.Open
	}
	return h.breaker(tag).State()
}

// worst is the worst state of all tags.
func (h *Hub) worst() breaker.State {
	worst := breaker.Closed
	for _, b := range h.breakers {
		worst = max(worst, b.State())
	}
	for tag := range h.cfg.Tags {
		if worst < breaker.Open && h.engine.Refusing(tag) {
			worst = breaker.Open
		}
	}
	return worst
}

// refusing is for the sync engine: a tag's syncs are refused, or are not any
// more.
func (h *Hub) refusing(tag int, refusing bool, err error) {
	h.clock.Void() // what credit is in words is not to be had without Redis
	if refusing {
		h.log.event(msgRefuses, slog.Int("tag", tag), slog.Any("cause", err))
	} else {
		h.log.event(msgTakes, slog.Int("tag", tag))
	}
}

// renamed is for the sync engine. Who sends syncs under this process's identity
// may send heartbeats under it too, and the fleet would count one process for
// two: so they get another. What is left of the old one expires.
func (h *Hub) renamed(tag int) {
	name := newIdentity()
	h.beatsAs.Store(&name)
	h.log.event(msgRenamed, slog.Int("tag", tag))
}

// newIdentity is 128 random bits.
func newIdentity() string {
	var id [16]byte
	rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(id[:])
}
