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
		l.takeParts(b)
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

// The ops of a batch can go in several messages. Mostly that finds the op for which Redis refuses a batch: a bad op
// must not cost the others. A refused batch is sent again in halves, its refused halves again in halves, and so on,
// until a refused part has one op. That one is dropped.

// refusedParts is the number of parts, refused in a row, after which Redis is taken to refuse all of them. A single bad
// op has at most two in a row, because the other half of each part is sound.
const refusedParts = 6

// split makes the halves of a refused batch the next ones to be sent. It returns false if the batch must be dropped: it
// has one op, or too many parts were refused.
func (l *lane) split(b *batch) bool {
	if l.part {
		l.refusedParts++
	}
	n := len(b.ops) / 2
	if n == 0 || l.refusedParts >= refusedParts {
		return false
	}
	l.parts = append(l.parts,
		&batch{tag: b.tag, ops: b.ops[:n], items: b.items[:n], urgent: b.urgent},
		&batch{tag: b.tag, ops: b.ops[n:], items: b.items[n:], urgent: b.urgent})
	l.frozen = nil
	return true
}

// leastShort is the number of short ops for which a message of their own is worth it.
const leastShort = 2

// splitShort takes the ops that have the short form (wire.Op.Short) out of a batch with others, and returns the batch
// that is to be sent after this one. A batch of one form is cheaper for Redis. The short ops go first if a caller waits
// for one of them.
func (b *batch) splitShort() []*batch {
	n, asks, bare := 0, false, true
	for i := range b.ops {
		op := &b.ops[i]
		bare = bare && op.AsksByView()
		if op.Short() {
			n, asks = n+1, asks || len(op.Asks) > 0
		}
	}
	if bare || n < leastShort || n == len(b.ops) {
		return nil
	}
	short := &batch{tag: b.tag, urgent: b.urgent, ops: make([]wire.Op, 0, n), items: make([]Item, 0, n)}
	others := &batch{tag: b.tag, urgent: b.urgent, ops: make([]wire.Op, 0, len(b.ops)-n), items: make([]Item, 0, len(b.ops)-n)}
	for i := range b.ops {
		to := others
		if b.ops[i].Short() {
			to = short
		}
		to.add(b.ops[i], b.items[i])
	}
	if !asks {
		short, others = others, short
	}
	*b = *short
	return []*batch{others}
}

// splitTags makes the parts of a batch, and of the parts that wait, the next ones to be sent, one for each tag, if
// Redis did not apply the batch because its keys are in several cluster slots: see wire.CrossSlot. From then on each
// message of the lane is for one tag.
func (l *lane) splitTags(b *batch, err error) bool {
	if l.apart || l.engine.cfg.Names.Tags == len(l.engine.lanes) || !wire.CrossSlot(err) {
		return false
	}
	all := append([]*batch{b}, l.parts...)
	l.apart, l.frozen, l.parts = true, nil, nil
	for _, b := range all {
		parts := map[int]*batch{}
		for i, it := range b.items {
			tag := int(it.Node().Tag)
			part := parts[tag]
			if part == nil {
				part = &batch{tag: tag, urgent: b.urgent}
				parts[tag] = part
				l.parts = append(l.parts, part)
			}
			part.add(b.ops[i], it)
		}
	}
	return true
}

// nextPart freezes the next part, if there is one.
func (l *lane) nextPart() bool {
	if l.part = len(l.parts) > 0; !l.part {
		l.parts, l.refusedParts = nil, 0
		return false
	}
	b := l.parts[0]
	l.parts = l.parts[1:]
	l.send(b)
	return true
}

// takeParts takes the parts that are left into a batch that is dropped.
func (l *lane) takeParts(b *batch) {
	for _, part := range l.parts {
		b.take(part)
	}
	l.parts = nil
}
