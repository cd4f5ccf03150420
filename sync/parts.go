package ratesync

import "github.com/hybridlimit/hybridlimit/internal/wire"

// This file sends the ops of a batch in several messages. Mostly it finds the op for which Redis refuses a batch: a bad
// op must not cost the others. A refused batch is sent again in halves, its refused halves again in halves, and so on,
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
		to.ops, to.items = append(to.ops, b.ops[i]), append(to.items, b.items[i])
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
			part.ops, part.items = append(part.ops, b.ops[i]), append(part.items, it)
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

// join takes the parts that are left into a batch that is dropped.
func (l *lane) join(b *batch) {
	for _, part := range l.parts {
		b.ops, b.items = append(b.ops, part.ops...), append(b.items, part.items...)
	}
	l.parts = nil
}
