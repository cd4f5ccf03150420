package algo

import (
	"github.com/hybridlimit/hybridlimit"
)

// Scale interprets an Answer under a limit of any kind. With a Floor, it is the scale of a class: Bucket and Window are
// what the class may use, and every level that the class handles is that above the floor.
type Scale struct {
	Kind   Kind      // of the limit
	Bucket Bucket    // of a bucket or queue; for windows and logs, their units only
	Window Window    // of a window; else Period is 0
	Log    LogWindow // of a log
	Floor  int64     // units, as Op.Floor
}

// ScaleOf returns the scale of a valid limit that is not Unlimited or Blocked.
func ScaleOf(l hybridlimit.Limit) Scale {
	s := Scale{Kind: KindOf(l.Algorithm)}
	switch s.Kind {
	case KindFixed, KindSliding, KindCalendar:
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

// Above returns the scale of a class with a floor, from one without. A log has none.
func (s Scale) Above(floor int64) Scale {
	if floor <= 0 || s.Kind == KindLog {
		return s
	}
	s.Floor = floor
	s.Bucket.Cap -= s.Low()
	if s.Window.Period > 0 {
		s.Window.Rate -= floor
		s.Window.Cap -= s.Low()
	}
	return s
}

// Low returns the sub-units below the floor.
func (s Scale) Low() int64 { return s.Floor * s.Bucket.Unit }

// Whole returns the scale of the limit without a floor.
func (s Scale) Whole() Scale {
	s.Bucket.Cap += s.Low()
	if s.Window.Period > 0 {
		s.Window.Rate += s.Floor
		s.Window.Cap += s.Low()
	}
	s.Floor = 0
	return s
}

// Seen returns an answer to an op with the floor of this scale, with levels above the floor.
func (s Scale) Seen(a Answer) Answer {
	a.Level -= s.Low()
	a.Cap -= s.Low()
	return a
}

// Units returns the whole units in a level.
func (s Scale) Units(level int64) int64 { return s.Bucket.Units(level) }

// Reset returns the µs until the key is unused again. A fixed window in debt carries the excess into the next window,
// so it takes until the end of that one. For a sliding window with ticks above 1 µs, it may be one window too long. The
// level is above the floor.
func (s Scale) Reset(a Answer) int64 {
	if s.Floor > 0 {
		a.Level += s.Low()
		return s.Whole().Reset(a)
	}
	switch s.Kind {
	case KindFixed, KindCalendar:
		if a.Level >= s.Bucket.Cap {
			return 0
		}
		w := s.Window
		if s.Kind == KindCalendar {
			w = w.At(w.Begin(a.Refill))
		}
		return a.Ends + ceilDiv(max(-a.Level, 0), w.Rate)*w.Follows
	case KindLog:
		return a.Ends
	case KindSliding:
		if a.Level >= s.Bucket.Cap {
			return 0
		}
		elapsed := max(0, s.Window.Period-a.Ends) // negative: the clock stepped back
		trails := a.Refill * s.Window.Tick * (s.Window.Unit - elapsed/s.Window.Tick)
		if a.Level+trails < s.Bucket.Cap {
			return a.Ends + s.Window.Period // the units of this window still count in the next
		}
		return a.Ends
	}
	return s.Bucket.WaitFull(a.Level)
}

// Since returns Op.Since for a limit that has been in force for µs: 0 if that is longer than a state of a bucket or
// queue lives.
func (s Scale) Since(µs int64) int64 {
	if s.Kind != KindBucket && s.Kind != KindQueue || µs > 3*s.Bucket.wait(s.Bucket.Cap+s.Low())+MaxLease+2*ClockSlack {
		return 0
	}
	return max(1, µs)
}

// Cancel returns the op that cancels the grant of an op with one ask, which a was granted at now. It is Back, with two
// exceptions: in a bucket, units granted after it do not come back; in a queue, served units do not.
func (s Scale) Cancel(a Answer, now int64) Op {
	op := s.Back(a, now)
	if s.Kind == KindBucket || s.Kind == KindQueue {
		op.RefundAt = now + a.Delay
	}
	return op
}

// Back returns the op that gives back the grant of an op with one ask, which a was granted at now. In a window, the
// units return to the window in which they were taken. In a log, the op removes the entry that the grant made, which is
// the last.
func (s Scale) Back(a Answer, now int64) Op {
	op := Op{Refund: a.Granted}
	switch s.Kind {
	case KindCalendar:
		op.RefundAt = a.Refill
	case KindFixed, KindSliding:
		op.RefundAt = s.Window.Number(now+a.Ends) - 1
	case KindLog:
		op.RefundAt = now + a.Ends - s.Log.Period
	}
	return op
}
