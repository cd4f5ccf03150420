package algo

// A calendar window counts like a fixed window, in periods of a calendar. The process computes the bounds of its
// period, and sends them with each op. Redis compares them with its clock and with the state. So no script knows a time
// zone. The number of a window is the second of Redis's clock at which it begins.
//
// Senders may disagree: their zone data or limits differ, or their clocks do. Redis then decides which window counts:
//
//  1. Without a state: the sender's, if it contains Redis's time.
//  2. The later begin, if the sender's window contains Redis's time. Units above Rate are carried. If it is less than
//     half a length later, all used units stay: otherwise two calendars that are an hour apart would give three windows
//     within two hours.
//  3. If they begin together: the sender's end.
//  4. If the state's window is over, and the sender's does not contain Redis's time: nothing is granted or
//     debited (Answer.Dropped), and the sender computes its window again. Units without a number may be of a window
//     between the two.
//
// The answer tells the number and the end, so a sender of an earlier begin takes them over.
//
// A window from the first use needs no calendar: a new one begins at the op that finds the last one over, or without a
// unit. Its bounds never overlap those of another one, so of two windows the earlier one counts: the later one began
// because Redis had lost a state.

// Span is a window that a sender names: its begin and its length, in s. The zero Span names none.
type Span struct {
	Begin  int64 // s of Redis time
	Length int64 // s
}

// second is the Step of a calendar window, in µs.
const second = 1_000_000

// In returns the window of an op whose sender names one. It has no effect on other kinds.
func (w Window) In(s Span) Window {
	if w.Calendar && s != (Span{}) {
		w.Win, w.Period = s.Begin, s.Length*second
	}
	return w
}

// At returns the window with the bounds at a Redis time. It is for windows of WindowOf: other ones stay as they are.
func (w Window) At(now int64) Window {
	if w.periods != nil {
		p := w.periods.At(now)
		w.Win, w.Period, w.Follows = p.Begin/second, p.End-p.Begin, p.After-p.End
	}
	return w
}

// Ends returns the end of the window at a Redis time; 0: a window from the first use, whose end only Redis knows.
func (w Window) Ends(now int64) int64 {
	switch {
	case w.FromUse:
		return 0
	case w.Calendar:
		w = w.At(now)
		return w.Begin(w.Win) + w.Period
	}
	return now - now%w.Period + w.Period
}

// Span returns the window of a sender; zero for other kinds than a calendar window.
func (w Window) Span() Span {
	if !w.Calendar {
		return Span{}
	}
	return Span{w.Win, w.Period / second}
}

// mine reports whether the sender's window contains a time.
func (w Window) mine(at int64) bool {
	return w.Win > 0 && at >= w.Begin(w.Win) && at < w.Begin(w.Win)+w.Period
}

// opens returns the number of the first window of a key.
func (w Window) opens(now int64) int64 {
	switch {
	case !w.Calendar, w.FromUse && !w.mine(now):
		return now / w.Step
	}
	return w.Win
}

// rollCalendar is roll for a calendar window.
func (w Window) rollCalendar(s State, now int64) State {
	over, ahead := now >= w.end(&s), w.Begin(s.Win)-now > ClockSlack
	switch mine := w.mine(now); {
	case w.FromUse && over:
		s = w.shiftTo(s, w.opens(now))
	case w.FromUse && (ahead || mine && w.Win < s.Win || s.Cur+s.Next == 0 && !mine):
		s.Win, s.Period = w.opens(now), w.Period
	case w.FromUse || !mine:
	case w.Win > s.Win:
		s = w.shiftTo(s, w.Win)
	case w.Win == s.Win || over || ahead:
		s.Win, s.Period = w.Win, w.Period
	}
	return s
}

// shiftTo begins the sender's window with a number after the state's.
func (w Window) shiftTo(s State, win int64) State {
	apart, length := 2*(win-s.Win), w.Period/w.Step
	if apart < length && !w.FromUse {
		s.Win, s.Period = win, w.Period
		return s
	}
	for n := range int64(3) { // a window between the two has carried, and has begun with what was leased of it
		if n == 0 || apart > (2*n+1)*length {
			s = w.shift(s, win)
		}
	}
	s.Period = w.Period
	return s
}

// closed reports whether nothing can be granted, because neither the state's window nor the sender's is that of Redis's
// clock. fresh: there was no state.
func (w Window) closed(s *State, now int64, fresh bool) bool {
	if !w.Calendar || w.FromUse {
		return false
	}
	early := w.Begin(s.Win) - now
	return now >= w.end(s) || early > 0 && (fresh || early > ClockSlack)
}
