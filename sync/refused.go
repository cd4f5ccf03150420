package ratesync

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// errStale is the error of a batch that met another process's batch under this process's identity: Redis holds a later
// batch, or has seen the sequence number before this process sent it.
var errStale = errors.New("ratesync: Redis holds a batch under this process's identity that this process did not send")

// refusedRow is the number of consecutive refused batches that make a tag Refusing.
const refusedRow = 3

// others reports whether a reply shows that another process sends batches under this identity. Redis then holds a later
// batch, or says that it applied this batch before, although no earlier attempt of this process can have been applied.
func (b *batch) others(r wire.Reply) bool { return r.Stale || r.Seen && !b.missed }

// refused handles a frozen batch that Redis has read and not applied. err is the cause; nil means that another process
// uses this identity. It returns the pause before the next attempt.
func (l *lane) refused(err error) time.Duration {
	b, cfg := l.frozen, &l.engine.cfg
	l.chain(b.tag).kept = time.Time{}
	if err != nil && l.split(b) {
		return 0
	}
	if l.refusedParts >= refusedParts {
		l.join(b)
	}
	l.row++
	again := false
	if err == nil {
		err = errStale
		// An attempt without an answer may have been applied, and under a new identity Redis could not tell. The batch
		// is dropped then. If every attempt was answered, Redis has not applied the batch, and sending it again loses
		// nothing.
		again = !b.missed
		l.rename(b.tag)
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

// applied ends a series of refusals.
func (l *lane) applied() {
	l.row, l.refusedParts = 0, 0
	if l.refusing.Swap(false) && l.engine.cfg.OnRefusing != nil {
		l.engine.cfg.OnRefusing(l.tag, false, nil)
	}
}

// rename gives the chain of a tag a new, random identity. A counter is not enough: two copies of one process would
// count in the same way.
func (l *lane) rename(tag int) {
	var more [8]byte
	rand.Read(more[:]) // never fails: crypto/rand ends the program instead
	cfg := &l.engine.cfg
	c := l.chain(tag)
	c.name, c.seq = cfg.Process+"."+hex.EncodeToString(more[:]), 0
	l.engine.renamed.Add(1)
	if cfg.OnRenamed != nil {
		cfg.OnRenamed(l.tag)
	}
}
