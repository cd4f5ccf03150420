package notice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

const (
	every     = time.Second            // the length of a tick
	lookFor   = 100 * time.Millisecond // the longest look, and the time that the looks of a tick take together
	closeFor  = time.Second            // the time that the looks of Close take together
	lastLook  = 4                      // ticks: an estimate is looked at after 2, 4 and 8 ticks without a call
	longest   = 64                     // ticks between two looks at a key without an answer
	abandoned = 900                    // ticks without a call and without an answer
)

// plan is when the goroutine looks at an entry again.
type plan struct {
	last  uint64 // tick of the call from which it counts
	due   uint64 // tick
	step  uint64 // ticks from this look to the next one
	blind bool   // the last look had no answer
}

// run is the goroutine. It ticks while keys were used lately.
func (w *watch) run() {
	defer close(w.done)
	defer w.ends(errGone) // unless end was called before
	timer := time.NewTimer(every)
	timer.Stop()
	var active []*entry
	for {
		select {
		case <-w.wake:
		case <-timer.C:
			now := w.tick.Add(1)
			active = w.visit(w.found(active), now)
			if len(active) > 0 {
				timer.Reset(every)
			} else {
				w.asleep.Store(true)
			}
		case <-w.stop:
			timer.Stop()
			w.end(w.found(active))
			return
		}
		w.tellAll()
		if w.asleep.Load() { // look for entries after asleep is set: a call that sees it earlier has listed its entry
			if active = w.found(active); len(active) > 0 {
				w.asleep.Store(false)
				timer.Reset(every)
			}
		}
	}
}

// visit looks at the entries that are due, and returns those to be looked at again.
func (w *watch) visit(active []*entry, now uint64) []*entry {
	var took time.Duration
	kept := active[:0]
	for i, e := range active {
		last := e.last.Load()
		if p := &e.plan; last != p.last {
			*p = plan{last: last, due: last + 2, step: 2}
		}
		due := now >= e.plan.due
		if !due && !e.dim.Load() {
			kept = append(kept, e)
			continue
		}
		if took >= lookFor || w.closed.Load() {
			kept = append(kept, active[i:]...)
			break
		}
		w.tellAll() // makes room for those of the look
		began := time.Now()
		shown, err := w.look(e)
		took += time.Since(began)
		if due && e.plan.after(shown, err, now) && w.unlist(e, last) {
			w.giveUp(e)
			continue
		}
		kept = append(kept, e)
	}
	clear(active[len(kept):])
	return kept
}

// after plans the look after one at this tick. It reports true if there is none.
func (p *plan) after(shown weight, err error, now uint64) (ends bool) {
	switch {
	case errors.Is(err, hybridlimit.ErrClosed):
		return true
	case err != nil:
		p.blind = true
		p.due = now + p.step
		p.step = min(2*p.step, longest)
		return now-p.last > abandoned
	case shown != estimate:
		return true
	case p.blind: // the units of the time without answers come now
		p.blind, p.step = false, 2
	}
	if p.step > lastLook {
		return true
	}
	p.due = now + p.step
	p.step *= 2
	return false
}

// look compares what a Peek says of a key. The error is that of a look without an answer.
func (w *watch) look(e *entry) (shown weight, err error) {
	defer func() {
		if v := recover(); v != nil { // of LimitFor: in a call, it would go to the caller
			err = fmt.Errorf("a panic: %v", v)
			w.lines.panicked("notice: a look at a key panicked, and is repeated later; LimitFor must return a limit for each key, such as Blocked()", v)
		}
		if err != nil {
			w.counts.failed.Add(1)
			w.lines.failed(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), lookFor)
	defer cancel()
	e.dim.Store(false)
	l := e.view.Load()
	res, err := l.peeks.Peek(ctx, e.key)
	if l.part && err == nil && res.Remaining <= 0 && weightOf(res.Source) >= estimate {
		l = w.self
		res, err = w.peeks.Peek(ctx, e.key)
	}
	switch shown = weightOf(res.Source); {
	case err != nil:
	case shown >= estimate:
		l.compare(e, &res)
	case shown == later:
		err = fmt.Errorf("the answer is of source %v, which does not know the fleet's limit", res.Source)
	}
	return shown, err
}

// tellAll tells the crossings that wait.
func (w *watch) tellAll() {
	for {
		select {
		case c := <-w.told:
			w.tell(c)
		default:
			return
		}
	}
}

func (w *watch) tell(c Crossing) {
	w.counts.told.Add(1)
	defer func() {
		if v := recover(); v != nil {
			w.counts.panics.Add(1)
			w.lines.panicked("notice: Config.On panicked, and its crossing is not told again; make it recover", v)
		}
	}()
	w.on(c)
}

// end is the rest of the goroutine after Close.
func (w *watch) end(active []*entry) {
	left, took := 0, time.Duration(0)
	var why error
	for _, e := range active {
		w.tellAll()
		err := errLate
		if took < closeFor {
			began := time.Now()
			_, err = w.look(e)
			took += time.Since(began)
		}
		if err != nil {
			left++
			why = cmp.Or(why, err)
		}
	}
	if left > 0 {
		why = fmt.Errorf("notice: Close: %d of %d keys had no last look: %w", left, len(active), why)
	}
	w.ends(why)
	w.tellAll()
	for _, e := range w.inMemory(active) {
		w.giveUp(e)
	}
}

// ends refuses crossings from now on. Only the first call counts.
func (w *watch) ends(as error) {
	w.closed.Store(true)
	w.sending.Lock()
	defer w.sending.Unlock()
	if !w.ended {
		w.ended, w.closeAs = true, as
	}
}

var (
	errLate = errors.New("the time was over")
	errGone = errors.New("notice: Config.On has ended its goroutine (runtime.Goexit), so nothing more was told")
)
