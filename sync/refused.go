package ratesync

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// This file is what a lane does when Redis has read a batch and does not apply
// it.

// errStale is why a batch is refused of which Redis holds a later one, or has
// seen one that this process did not send.
var errStale = errors.New("ratesync: Redis holds a batch of this process's identity that it did not send")

// refusedRow is how many batches in a row make a tag Refusing.
const refusedRow = 3

// others reports whether a reply is about a batch that another has sent under
// this identity: a later one, or, to a batch that is sent for the first time,
// one that was applied before.
func (b *batch) others(r wire.Reply) bool { return r.Stale || r.Seen && !b.missed }

// refused deals with a frozen batch that Redis has read and not applied: err is
// why, nil if another uses this identity. It returns how long to wait.
func (l *lane) refused(err error) time.Duration {
	b, cfg := l.frozen, &l.engine.cfg
	l.kept = time.Time{}
	l.row++
	again := false
	if err == nil {
		err = errStale
		// An attempt that had no answer may have been applied, and under another
		// identity Redis would not know: what it carried is lost then. Else it
		// was not, and nothing is.
		again = !b.missed
		l.rename()
	}
	if again {
		l.send(b)
	} else {
		l.engine.refused.Add(uint64(len(b.ops)))
		l.settle(func(_ int, it Item) { it.Drop() })
		if len(b.ops) > 0 && cfg.OnRefused != nil {
			cfg.OnRefused(l.tag, len(b.ops), err)
		}
	}
	if l.row < refusedRow {
		return 0
	}
	if !l.refusing.Swap(true) && cfg.OnRefusing != nil {
		cfg.OnRefusing(l.tag, true, err)
	}
	return retryAfter(l.row - refusedRow + 1)
}

// applied ends a row of refusals.
func (l *lane) applied() {
	l.row = 0
	if l.refusing.Swap(false) && l.engine.cfg.OnRefusing != nil {
		l.engine.cfg.OnRefusing(l.tag, false, nil)
	}
}

// rename gives the lane an identity that nobody has. A counter would not do: two
// copies of one process would count alike.
func (l *lane) rename() {
	var more [8]byte
	rand.Read(more[:]) // never fails: crypto/rand ends the program instead
	cfg := &l.engine.cfg
	l.name, l.seq = cfg.Process+"."+hex.EncodeToString(more[:]), 0
	l.engine.renamed.Add(1)
	if cfg.OnRenamed != nil {
		cfg.OnRenamed(l.tag)
	}
}
