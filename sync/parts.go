package ratesync

import "github.com/hybridlimit/hybridlimit/internal/wire"

// This file sends the ops of a batch in several messages. Mostly it finds the op for which Redis refuses a batch: a bad
// op must not cost the others. A refused batch is sent again in halves, its refused halves again in halves, and so on,
// until a refused part has one op. That one is dropped.

// refusedParts is the number of parts, refused in a row, after which Redis is taken to refuse all of them. A single bad op
// has at most two in a row, because the other half of each part is sound.
const refusedParts = 6

// split makes the halves of a refused batch the next ones to be sent. It returns false if the batch must be dropped: it has
// one op, or too many parts were refused.
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

// leastPays is the number of ops that only pay for which a message of their own is worth it.
const leastPays = 2

// splitPays takes the ops that only pay out of a batch with others, and returns the batch of these. A batch of one form is cheaper for
// Redis. The others stay, because their callers may wait.
func (b *batch) splitPays() []*batch {
	n := 0
	for i := range b.ops {
		if b.ops[i].Pays() {
			n++
		}
	}
	if n < leastPays || n == len(b.ops) {
		return nil
	}
	pays := &batch{tag: b.tag, urgent: b.urgent, ops: make([]wire.Op, 0, n), items: make([]Item, 0, n)}
	ops, items := b.ops[:0], b.items[:0]
	for i, op := range b.ops {
		if it := b.items[i]; op.Pays() {
			pays.ops, pays.items = append(pays.ops, op), append(pays.items, it)
		} else {
			ops, items = append(ops, op), append(items, it)
		}
	}
	b.ops, b.items = ops, items
	return []*batch{pays}
}

// splitTags makes the parts of a batch, and of the parts that wait, the next ones to be sent, one for each tag, if Redis
// did not apply the batch because its keys are in several cluster slots: see wire.CrossSlot. From then on each message
// of the lane is for one tag.
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
