package algo

import "github.com/hybridlimit/hybridlimit"

// Scale reads what an Answer says under a limit of any kind.
type Scale struct {
	Kind   Kind      // of the limit
	Bucket Bucket    // of windows and logs: their units only
	Window Window    // of a window; else Period is 0
	Log    LogWindow // of a log
}

// ScaleOf is the scale of a valid limit that counts at all.
func ScaleOf(l hybridlimit.Limit) Scale {
	s := Scale{Kind: KindOf(l.Algorithm)}
	switch s.Kind {
	case KindFixed, KindSliding:
		s.Window = WindowOf(l)
		s.Bucket = Bucket{Unit: s.Window.Unit, Refill: 1, Cap: s.Window.Cap}
	case KindLog:
		s.Log = LogOf(l)
		s.Bucket = Bucket{Unit: 1, Refill: 1, Cap: l.Rate}
	default:
		s.Bucket = BucketOf(l)
	}
	return s
}

// Units is how many whole units a level has left.
func (s Scale) Units(level int64) int64 { return s.Bucket.Units(level) }

// Reset is how many µs until nothing is used any more. In debt a fixed window
// carries the excess into the next: it takes the end of that one. Of a sliding
// window whose ticks are longer than 1 µs it may be a window too long.
func (s Scale) Reset(a Answer) int64 {
	switch s.Kind {
	case KindFixed:
		if a.Level >= s.Bucket.Cap {
			return 0
		}
		return a.Ends + ceilDiv(max(-a.Level, 0), s.Window.Rate)*s.Window.Period
	case KindLog:
		return a.Ends
	case KindSliding:
		if a.Level >= s.Bucket.Cap {
			return 0
		}
		elapsed := max(0, s.Window.Period-a.Ends) // less than none: the clock stepped back
		trails := a.Refill * s.Window.Tick * (s.Window.Unit - elapsed/s.Window.Tick)
		if a.Level+trails < s.Bucket.Cap {
			return a.Ends + s.Window.Period // what is counted in this window fades in the next
		}
		return a.Ends
	}
	return s.Bucket.WaitFull(a.Level)
}

// Since is what an op says of a limit that has been in force for so many µs: 0
// once that is longer than a state of a bucket or queue lives.
func (s Scale) Since(µs int64) int64 {
	if s.Kind != KindBucket && s.Kind != KindQueue || µs > 3*s.Bucket.wait(s.Bucket.Cap)+MaxLease+2*ClockSlack {
		return 0
	}
	return max(1, µs)
}

// Cancel is the op that gives back what the only ask of an op was granted at
// now: Back, of a bucket less what was granted after it, and of a queue less what
// has been served.
func (s Scale) Cancel(a Answer, now int64) Op {
	op := s.Back(a, now)
	if s.Kind == KindBucket || s.Kind == KindQueue {
		op.RefundAt = now + a.Delay
	}
	return op
}

// Back is the op that gives back at once what the only ask of an op was granted
// at now: to the window in which it was taken, and of a log the entry that was
// made, which is the last.
func (s Scale) Back(a Answer, now int64) Op {
	op := Op{Refund: a.Granted}
	switch s.Kind {
	case KindFixed, KindSliding:
		op.RefundAt = (now+a.Ends)/s.Window.Period - 1
	case KindLog:
		op.RefundAt = now + a.Ends - s.Log.Period
	}
	return op
}
