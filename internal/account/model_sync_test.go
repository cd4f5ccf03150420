package account

import "slices"

// This file is the part of package hybrid around a sync: the entry and the sync engine.

// freeze sends a batch, as the entry does under the sync engine.
func (w *world) freeze(p *proc) bool {
	if p.frozen != nil {
		return false
	}
	p.wants = SyncNot
	if first := p.waiters.Front(); first != nil {
		w.adapt(p, first)
	}
	w.begin(p)
	c := w.terms(p)
	op, b, ok := w.sendStep(p, c)
	w.forgiven += b.Forgiven
	w.lost += b.Lost
	if !ok {
		if at := p.s.LookAt(c, w.now); at > 0 && at <= w.now {
			w.fail("p%d has nothing to send, and looks again at once", p.id)
		}
		w.end(p)
		return false
	}
	bare := w.bare && (op.OnlyAsks() || op.AsksByView() && w.now < p.sureUntil || w.mutant == mutBareOwes && op.Gen == 0)
	if w.greedy && c.Mode != ModeDeferred && !bare {
		op.Div, op.Demand, p.s.lone = 1, 1<<40, false
	}
	if w.mutant == mutCreditWhileAsked {
		p.s.asked = false
	}
	if op.Ahead {
		w.ahead.asked++
	}
	w.noteUntold(p, c, &op)
	p.frozen = &frozenOp{op, p.plan, modelBatch{id: p.id}, w.now, p.s.Span(c, w.now)}
	if bare {
		p.bares--
		p.frozen.batch.seq = p.bares
	} else {
		p.frozen.batch.seq = p.nextSeq()
	}
	w.logf("p%d syncs: owed %d, asks %v, lease of 1/%d", p.id, op.Owed, op.Asks, op.Div)
	w.end(p)
	w.send(p)
	return true
}

// send puts the frozen batch on the network.
func (w *world) send(p *proc) {
	w.net = append(w.net, message{batch: p.frozen.batch, plan: p.frozen.plan, op: p.frozen.op, span: p.frozen.span})
}

// retry sends the frozen batch again.
func (w *world) retry(p *proc) {
	if p.frozen != nil {
		w.cover(p)
		w.spoilRetry(p)
		w.send(p)
	}
}

// cover gives the frozen batch of p an envelope, if it has none. An earlier message may have been applied, or may still be
// applied, and p ignores its reply.
func (w *world) cover(p *proc) {
	if f := p.frozen; f.batch.bare() {
		w.uncertain += f.op.Asked()
		if w.mutant != mutNeverCovered {
			f.batch.seq = p.nextSeq()
		}
	}
}

// nextSeq returns the next sequence number of p.
func (p *proc) nextSeq() int64 {
	p.seq++
	return p.seq
}

// bare reports whether the batch has no envelope.
func (b modelBatch) bare() bool { return b.seq < 0 }

// settle delivers a reply, as the entry does.
func (w *world) settle(p *proc, r modelReply) {
	f := p.frozen
	p.frozen, p.gaveUp, p.taken = nil, 0, r.taken
	w.redis.heard(f.batch, r.at)
	p.heard(r.skew, w.now-f.sent)
	w.begin(p)
	if r.gap || p.epoch != 0 && p.epoch != r.epoch && !f.batch.bare() {
		p.lost = w.now
	}
	if !f.batch.bare() {
		p.epoch, p.sureUntil = r.epoch, f.sent+100e6 // as the sync engine: bareTold
	}
	if f.op.Ahead && r.ans.Gen != 0 {
		w.ahead.units += r.ans.Lease
	}
	answered, next, b := w.receiveStep(p, w.terms(p), w.dated(p, f.sent, r))
	w.lost += b.Lost
	if b.Dropped > 0 {
		w.late += f.op.Owed
		w.logf("Redis has dropped %d units of p%d: they came too late", f.op.Owed, p.id)
	}
	w.freshDebts(p, f.op, r)
	w.logf("p%d hears: granted %d, lease %d for %d µs, level %.2f; held %d, owed %d, lost %d", p.id, r.ans.Granted,
		r.ans.Lease, r.ans.Life, float64(r.ans.Level)/float64(p.plan.Bucket.Unit), p.s.Held(), p.s.pending, b.Lost)
	for _, c := range answered {
		switch v := c.Verdict; {
		case v.Action == Admit && p.plan.Bucket.Queue:
			w.admitLater(p, c.N, v.Delay)
		case v.Reason == Granted, v.Reason == Spare:
			w.admitWaiter(p, c, v.Reason == Granted, r.at)
		case v.Action == Admit:
			w.admit(p, c.N)
		case v.Reason == Proved:
			w.checkDenial(p, c.N)
		}
	}
	p.calls = slices.DeleteFunc(p.calls, func(c *waitingCall) bool { return c.done || c.gone })
	p.wants = max(p.wants, next)
	w.end(p)
}

// admitWaiter counts a waiting call that an answer serves. A call that the op carried counts at the time of Redis's grant, as
// the documentation of package hybrid says. A call that joined later spends surplus units, so it counts now.
func (w *world) admitWaiter(p *proc, c *Waiter, carried bool, granted int64) {
	at := w.now
	if carried {
		at = granted
	}
	p.admitted += c.N
	w.spending.admit(at, c.N)
	w.receipt.admit(w.now, c.N)
	w.logf("  a call for %d that waited is admitted (carried: %v)", c.N, carried)
}
