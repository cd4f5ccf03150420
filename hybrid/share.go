package hybrid

// share is a process's own bucket while Redis does not answer: counted in
// fractional units, so that a share below one unit still admits in time.
type share struct {
	level    float64 // units left
	at       int64   // ns at which level was right
	started  bool
	admitted int64 // units admitted and not yet owed
	past     int64 // of a window: those of admitted that were in an earlier one
	ends     int64 // of a window: ns at which that of the others is over
}

// shareTerms is how large that bucket is.
type shareTerms struct {
	policy Fallback
	cap    float64 // units
	perNs  float64 // units that come back each ns
	period int64   // of a window, ns; 0: it is a bucket
	ends   int64   // of a window: ns at which that of now is over; 0: not known
}

// most is how much is saved up: a share below one unit is carried until it is
// one, or it would never admit.
func (t shareTerms) most() float64 { return max(t.cap, 1) }

func (s *share) refill(t shareTerms, now int64) {
	if now > s.at {
		s.level += float64(now-s.at) * t.perNs
		s.at = now
	}
	s.level = min(s.level, t.most())
}

// start begins a stretch of fallback, unless that is done, from a level.
func (s *share) start(warm float64, now int64) {
	if !s.started {
		s.level, s.at, s.started = warm, now, true
	}
}

// take decides n units; warm is the level to start from.
func (s *share) take(t shareTerms, n, now int64, warm float64) bool {
	s.start(warm, now)
	s.refill(t, now)
	switch t.policy {
	case FallbackDenyAll:
		return false
	case FallbackAllowAll:
	default:
		if s.level < float64(n) {
			return false
		}
	}
	s.level = max(0, s.level-float64(n))
	if t.period > 0 && now >= s.ends {
		s.past = s.admitted
		if s.ends = t.ends; s.ends <= now {
			s.ends = now + t.period // as late as it can be
		}
	}
	s.admitted += n
	return true
}

// wait is how many ns until take(n) may succeed; negative: never.
func (s *share) wait(t shareTerms, n int64) int64 {
	if t.policy == FallbackDenyAll || float64(n) > t.most() || t.perNs <= 0 {
		return -1
	}
	return int64(max(0, float64(n)-s.level)/t.perNs) + 1
}

// forgive ends a stretch of fallback that leaves nothing to be owed, before
// Redis is back. Else a key that the fallback has once admitted could not be
// forgotten while Redis is away, and a memory full of such keys has no room for
// another one. Call it under e.mu.
func (e *entry) forgive(now int64) {
	s := e.state.share
	admitted := s.admitted
	if s.settle(e.lim.shareTerms(e.rules.Load(), e.lim.fleet.size()), now) == 0 {
		e.state.share = s
		e.lim.count.forgiven.Add(admitted)
	}
}

// settle ends a stretch of fallback: what was admitted and what the bucket
// lacks at this moment, whichever is less, is owed. What has been refilled
// since is forgiven, as it would have been in Redis; what is owed is not. In a
// window nothing comes back before its end, and all is forgiven with it: what is
// owed is what was admitted in the current one.
func (s *share) settle(t shareTerms, now int64) int64 {
	if s.admitted == 0 {
		return 0
	}
	s.refill(t, now)
	owed := int64(0)
	if t.period == 0 {
		lacks := int64(t.cap - s.level + 0.999999)
		owed = min(s.admitted, max(lacks, 0))
	} else if now < s.ends {
		owed = max(0, s.admitted-s.past) // a lease may have paid for some
	}
	s.admitted, s.past = 0, 0
	return owed
}
