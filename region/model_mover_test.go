package region

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// mutant is a rule that is switched off.
type mutant int

const (
	mutNone      mutant = iota
	mutTwoMovers        // processes move units without a permit
	mutNoEscrow         // the regions have the whole burst, and units are under way all the same
	mutNoReserve        // nothing is kept for free leases
	mutOldUnits         // units are given however old they are
	mutNotLanded        // the next units are asked for before Redis knows of the last ones
	mutLateReply        // an answer counts although its ask has timed out
)

func (m mutant) String() string {
	return [...]string{"none", "two movers", "no escrow", "no reserve", "old units", "not landed", "late reply"}[m]
}

// beats notes the heartbeats up to now.
func (w *world) beats() {
	for _, r := range w.regions {
		for _, p := range r.procs {
			if w.now >= p.asleep && !p.mute {
				p.beat = w.now - w.now%int64(time.Second)
			}
		}
	}
}

// acquire asks for the permit of the key.
func (w *world) acquire(p *proc) bool {
	m := &p.r.permit
	switch {
	case w.mutant == mutTwoMovers:
		return true
	case p.mute, w.now < m.learns:
		return false
	case m.id != 0 && m.id != p.id && w.now-m.holder.beat < member:
		return false
	}
	m.holder, m.id = p, p.id
	w.logf("r%d p%d has the permit", p.r.place, p.id)
	return true
}

func (w *world) release(p *proc) {
	if m := &p.r.permit; m.id == p.id && !p.mute {
		*m = modelPermit{learns: m.learns}
	}
	p.holds = false
}

// move runs the mover of a process once.
func (w *world) move(p *proc) {
	c, left := p.course, p.s.Remaining(p.conditions(), w.now)
	if w.greedy { // safety must not depend on modesty
		left = min(left, 0)
	}
	for i := range c.donors {
		if c.donors[i].asked > 0 && w.now-c.asked >= int64(askFor) {
			c.failed(i, w.now)
		}
	}
	if c.given > 0 && (p.s.ToldGiven(p.gave) || w.mutant == mutNotLanded) {
		c.landed()
	}
	if p.holds && c.idle() && (c.spent(w.now) || !c.wants(left, w.now)) {
		w.release(p)
	}
	if !c.mayAsk(left, w.now) {
		return
	}
	if !p.holds {
		if !w.acquire(p) {
			return
		}
		c.permitted(w.now)
		p.holds, p.got = true, w.now
	}
	for i, n := range c.ask(left, int64(len(p.r.procs)), w.now) {
		if n == 0 {
			continue
		}
		to := i
		if to >= p.r.place {
			to++
		}
		w.logf("r%d p%d asks r%d for %d", p.r.place, p.id, to, n)
		w.far = append(w.far, farMessage{p: p, id: p.id, to: to, n: n, sent: w.now, round: c.asked})
	}
}

// floor returns the units that a region keeps.
func (r *modelRegion) floor() int64 { return r.plan.Burst / 4 }

// deliver moves a message between regions forward.
func (w *world) deliver(i int, lose bool) {
	m := w.far[i]
	w.far = append(w.far[:i:i], w.far[i+1:]...)
	r, p := w.regions[m.to], m.p
	slept := p.asleep > m.sent // the reply waited in its socket, and may win against the end of the context
	if lose || p.r.cut[m.to] || w.now-m.sent > modelLinger && (!m.reply || !slept) {
		if m.reply {
			w.lost += m.ans.Granted
		}
		return
	}
	if !m.reply {
		m.ans = r.run(algo.Op{Asks: []int64{m.n}, Partial: true, Floor: r.floor()}, r.tick(w.now))
		m.reply = true
		w.logf("r%d grants %d to r%d", m.to, m.ans.Granted, p.r.place)
		w.far = append(w.far, m)
		return
	}
	place := m.to
	if place > p.r.place {
		place--
	}
	c := p.course
	if p.id != m.id || w.now < p.asleep || c.asked != m.round || c.donors[place].asked == 0 {
		if p.id != m.id || w.mutant != mutLateReply || w.now < p.asleep {
			w.lost += m.ans.Granted
			return
		}
	}
	if w.now-m.sent >= int64(askFor) && !slept && w.mutant != mutLateReply { // the shell's context has ended
		w.lost += m.ans.Granted
		c.failed(place, w.now)
		return
	}
	if w.mutant == mutOldUnits {
		c.permit = w.now
	}
	give := c.answer(place, m.ans.Granted, max(0, r.limit.Bucket.Units(m.ans.Level)-r.floor()), w.now)
	w.lost += m.ans.Granted - give
	if give == 0 {
		return
	}
	w.moved += give
	if w.late(p.got) {
		p.got = -1
	}
	w.begin(p)
	p.s.Refund(p.conditions(), give, account.Taken{}, account.SyncNow)
	p.gave = w.now
	w.end(p)
	w.logf("r%d p%d gives %d", p.r.place, p.id, give)
}

// crash replaces a process. Redis may never hear of the units that it owes: as many may be admitted on top, once.
func (w *world) crash(r *modelRegion, i int) {
	p := *r.procs[i]
	w.begin(&p)
	w.allowed += float64(max(0, min(p.s.Open()-p.s.GivenBack(), r.terms.Credit)))
	w.logf("r%d p%d crashes", r.place, p.id)
	if r.permit.id == p.id {
		r.permit.holder = &p
	}
	w.start(r, i)
}

// wipe makes a Redis lose its data.
func (w *world) wipe(r *modelRegion) {
	w.now += 1000
	at := r.tick(w.now)
	before := r.limit.Bucket.Load(r.state, at)
	b := r.limit.Bucket
	forgotten := b.Cap - before.Level + (before.Out[0]+before.Out[1])*b.Unit
	w.allowed += float64(forgotten)/float64(b.Unit) + float64(r.course.under)
	w.logf("r%d is wiped", r.place)
	r.state, r.epoch = algo.State{}, 0
	clear(r.env)
	r.permit = modelPermit{learns: w.now + int64(3*time.Second)}
	w.now += 1000
}
