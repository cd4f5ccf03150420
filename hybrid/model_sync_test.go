package hybrid

// This file is what entry.go and the sync engine do around a sync.

// freeze sends a batch, as entry.Freeze under the engine.
func (w *world) freeze(p *proc) bool {
	if p.frozen != nil {
		return false
	}
	p.wants = syncNot
	w.begin(p)
	kept := p.waiters[:0]
	for _, c := range p.waiters {
		if !c.gone {
			kept = append(kept, c)
		}
	}
	p.waiters = kept
	p.carried = min(len(kept), maxAsks)
	var asks []int64
	for _, c := range kept[:p.carried] {
		asks = append(asks, c.n)
	}
	t := w.terms(p)
	fallback := p.s.share.admitted
	owed := p.s.pending
	op, ok := p.s.freeze(t, asks, w.now)
	w.forgiven += fallback - (p.s.owed() - owed)
	if !ok {
		p.carried = 0
		w.end(p)
		return false
	}
	if w.greedy && t.mode != ModeDeferred {
		op.Div, op.Demand = 1, 1<<40
	}
	if w.mutant == mutCreditWhileAsked {
		p.s.asked = false
	}
	p.seq++
	p.frozen = &frozenOp{op, modelBatch{p.id, p.seq}, w.now}
	w.logf("p%d syncs: owed %d, asks %v, lease of 1/%d", p.id, op.Owed, op.Asks, op.Div)
	w.end(p)
	w.send(p)
	return true
}

// send puts the frozen batch on its way.
func (w *world) send(p *proc) {
	w.net = append(w.net, message{batch: p.frozen.batch, op: p.frozen.op})
}

// retry sends the frozen batch again.
func (w *world) retry(p *proc) {
	if p.frozen != nil {
		w.spoilRetry(p)
		w.send(p)
	}
}

// settle brings a reply, as entry.Settle.
func (w *world) settle(p *proc, r modelReply) {
	f := p.frozen
	p.frozen, p.gaveUp = nil, 0
	w.redis.heard(f.batch, r.at)
	w.begin(p)
	var waiting []int64
	var present []*waitingCall
	carried := 0
	for i, c := range p.waiters {
		if !c.gone {
			present, waiting = append(present, c), append(waiting, c.n)
			if i < p.carried {
				carried++
			}
		}
	}
	p.carried = 0
	if r.gap || p.epoch != 0 && p.epoch != r.epoch {
		p.lost = w.now
	}
	p.epoch = r.epoch
	t := w.terms(p)
	served, lost := w.settleStep(p, t, answer{Answer: r.ans, redisNow: r.now, sent: f.sent, carried: carried}, waiting)
	w.lost += lost
	if r.ans.Dropped {
		w.late += f.op.Owed
		w.logf("Redis has dropped %d units of p%d: they came too late", f.op.Owed, p.id)
	}
	w.freshDebts(p, f.op, r)
	w.logf("p%d hears: granted %d, lease %d for %d µs, level %.2f; held %d, owed %d, lost %d", p.id, r.ans.Granted,
		r.ans.Lease, r.ans.Life, float64(r.ans.Level)/float64(t.bucket.Unit), p.s.held(), p.s.pending, lost)
	p.waiters = nil
	for i, c := range present {
		if served[i] {
			w.admitWaiter(p, c, i < carried, r.at)
			continue
		}
		v := p.s.judge(t, c.n, w.now)
		switch {
		case v.action == ask && i >= carried:
			p.waiters = append(p.waiters, c)
		case v.action == admit:
			w.admit(p, c.n)
		}
		p.wants = max(p.wants, v.sync)
	}
	w.end(p)
	if p.s.pending > 0 {
		p.wants = max(p.wants, syncLazily)
	}
}

// admitWaiter counts a call served with what came. One that the op carried
// counts at the moment at which Redis granted it, as hybrid's documentation
// says; one that joined later spends what is over, so it counts now.
func (w *world) admitWaiter(p *proc, c *waitingCall, carried bool, granted int64) {
	at := w.now
	if carried {
		at = granted
	}
	p.admitted += c.n
	w.spending.admit(at, c.n)
	w.receipt.admit(w.now, c.n)
	w.logf("  a call for %d that waited is admitted (carried: %v)", c.n, carried)
}
