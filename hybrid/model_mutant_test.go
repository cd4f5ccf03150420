package hybrid

// mutant is a rule switched off. The step has no hooks for it: the world
// alters the state around the step, or what Redis says.
type mutant uint8

const (
	mutNone             mutant = iota
	mutInflight                // what is in flight does not count as owed
	mutSendRefill              // the view refills from when the question left
	mutNoNetting               // a lease is kept beside the credit spent meanwhile
	mutNetExpired              // an expired grant pays too
	mutReceiptDeadline         // a lease's life counts from the answer
	mutCreditWhileAsked        // credit is spent while asks are in flight
	mutLongLife                // every lease lives for a second
	mutNoTicks                 // the deadline is not two ticks early
	mutAnyCost                 // one unit of credit is enough for any cost
	mutBlind                   // a forgotten key is taken for full
	mutBlindSoon               // it is taken for full after one time to full
	mutEvictOwing              // a key that owes is forgotten
	mutLateWord                // a word stays good although its epoch passed
)

// forgetInflight hides what is in flight until the returned function is called.
func (w *world) forgetInflight(p *proc) func() {
	if w.mutant != mutInflight {
		return func() {}
	}
	hidden := p.s.inflight
	p.s.inflight = 0
	return func() { p.s.inflight = hidden }
}

// settleStep is state.settle, or a wrong one.
func (w *world) settleStep(p *proc, t *terms, a answer, waiting []int64) (served []bool, lost int64) {
	s := &p.s
	switch w.mutant {
	case mutSendRefill:
		served, lost = s.settle(t, a, waiting, w.now)
		s.view.received = s.view.sent
		return served, lost
	case mutNoNetting:
		pending := s.pending
		s.pending = 0
		served, lost = s.settle(t, a, waiting, w.now)
		s.pending += pending
		return served, lost
	case mutNetExpired:
		late := w.now >= a.sent+a.Life*1000-2*t.tick
		served, lost = s.settle(t, a, waiting, w.now)
		if late {
			net := min(lost, s.pending)
			s.pending -= net
			lost -= net
		}
		return served, lost
	case mutReceiptDeadline:
		sent := a.sent
		a.sent = w.now
		served, lost = s.settle(t, a, waiting, w.now)
		s.view.sent = sent
		return served, lost
	case mutNoTicks:
		no := *t
		no.tick = 0
		return s.settle(&no, a, waiting, w.now)
	}
	return s.settle(t, a, waiting, w.now)
}

func (m mutant) String() string {
	return [...]string{
		"none", "what is in flight is not owed", "refill counts from the sending", "no netting", "an expired grant is netted",
		"a lease lives from its receipt", "credit while asks are in flight", "every lease lives a second", "no two ticks",
		"credit for any cost", "always blind", "blind too soon", "an owing key is forgotten", "a word outlives its epoch",
	}[m]
}
