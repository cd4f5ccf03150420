package permits_test

// beat sends a heartbeat after a time, and so on. One without an answer is sent again soon, because a process whose heartbeats are
// too old admits nothing new.
func (p *process) beat(d int64) {
	w := p.w
	w.After(d, func() {
		p.later(func() {
			sent, id := w.Now, p.id
			pulse := p.member.Beat(w.Now)
			answered, over := false, false
			next := int64(float64(period) * (0.9 + 0.2*w.rnd.Float64()))
			w.exchange(func() func() {
				losses, beats := w.beat(id, pulse)
				return func() {
					p.later(func() {
						if id != p.id || over {
							return
						}
						answered, over = true, true
						p.excuse()
						p.beaten(p.member.Beaten(pulse, sent, w.Now, losses, beats))
					})
				}
			})
			w.After(period/4, func() {
				p.later(func() {
					if !answered {
						over = true
						p.member.Missed(pulse)
						p.beat(0)
						return
					}
					p.beat(next - period/4)
				})
			})
		})
	})
}

// beaten goes on after a heartbeat.
func (p *process) beaten(again bool) {
	p.excuse()
	session := p.member.Standing().Session
	if again && (p.w.mutant != "tell" || session != p.session) {
		p.tell()
	}
	p.session = session
	for _, h := range p.keys {
		if !h.lists {
			continue
		}
		dead := p.member.Dead
		if p.w.mutant == "look" {
			dead = func(string, int64) bool { return true }
		}
		h.lists = h.Accuse(p.conditions(), p.w.Now, dead)
		p.settle(h)
	}
}
