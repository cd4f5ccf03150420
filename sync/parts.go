package ratesync

// This file finds the op for which Redis refuses a batch: a bad op must not cost the others. A refused batch is sent again
// in halves, its refused halves again in halves, and so on, until a refused part has one op. That one is dropped.

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
		&batch{ops: b.ops[:n], items: b.items[:n], urgent: b.urgent}, &batch{ops: b.ops[n:], items: b.items[n:], urgent: b.urgent})
	l.frozen = nil
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
