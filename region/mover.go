package region

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// This file is the shell of the courses: one goroutine, the mover, has all of them. Its messages run in goroutines of
// their own, which tell it their ends as events. Without a denied key it sleeps.

const (
	// pace is the time between two looks of the mover at its keys.
	pace = 10 * time.Millisecond
	// mostFlights bounds the messages in flight.
	mostFlights = 256
	// logEvery is the least time between two lines about the failures of one region.
	logEvery = time.Minute
	// primeEvery is the time between two acquisitions that keep the permits of Redis in use. Redis remembers them for a
	// day, and grants none in the first three seconds of their use.
	primeEvery = 12 * time.Hour
	// primeAgain is the time between two attempts until Redis has granted one.
	primeAgain = 1500 * time.Millisecond
	// warmFor bounds the first message to another region.
	warmFor = 2 * time.Second
	// primeKey is the key of these acquisitions. It moves no units.
	primeKey = "region"
)

// The lines of the log.
const (
	msgSilent   = "hybridlimit: another region did not answer; until it does, no units come from it, and the last ones may be lost"
	msgNoPermit = "hybridlimit: no permit to move units between regions; a denied key has this region's share until the cause is gone"
)

// event is the end of a message, for the mover.
type event struct {
	do   func(now int64)
	lose func() // what to do if the mover has ended
}

// moving is a key whose units the mover moves.
type moving struct {
	*course
	note      *note
	permit    hybridlimit.Permit
	held      bool  // the permit
	acquiring bool  // a message about the permit is in flight
	giving    int   // calls of Give that have not returned
	gave      int64 // of the last one, for Landed
	again     int64 // ns; the permit is not asked for before
	seen      int64 // ns; the last denial, or the time at which the key was noted
}

// mover is the state of the goroutine.
type mover struct {
	*Limiter
	keys    map[*note]*moving
	flights int
	ending  bool // no new asks
}

// now returns the time of the mover's clock.
func (l *Limiter) now() int64 { return int64(time.Since(l.start)) + 1 }

// move is the mover.
func (l *Limiter) move() {
	defer l.wg.Done()
	m := &mover{Limiter: l, keys: map[*note]*moving{}}
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	prime := time.NewTimer(0)
	defer prime.Stop()
	closing := l.closing
	for !m.ending || m.flights > 0 {
		if len(m.keys) == 0 && m.flights == 0 {
			ticker.Stop()
		}
		select {
		case <-l.ctx.Done():
			m.end()
			return
		case <-closing:
			m.ending, closing = true, nil
		case <-l.notes.added:
			ticker.Reset(pace)
			for _, n := range l.notes.news() {
				m.enter(n)
			}
		case e := <-l.events:
			e.do(l.now())
		case <-ticker.C:
		case <-prime.C:
			if !m.ending {
				m.prime(prime)
			}
		}
		m.look()
	}
	m.end()
}

// end gives the permits back.
func (m *mover) end() {
	for _, k := range m.keys {
		if k.held {
			k.permit.Release()
		}
	}
}

// enter adds a key.
func (m *mover) enter(n *note) {
	now := m.now()
	// Many processes may note a key in the same moment. One of them gets the permit.
	spread := min(m.receiver.Fleet()*int64(time.Millisecond), int64(time.Second))
	m.keys[n] = &moving{course: newCourse(m.terms.Load()), note: n, seen: now, again: now + rand.Int64N(spread)}
}

// look looks at all keys.
func (m *mover) look() {
	now, fleet := m.now(), int64(0)
	m.warmUp(now)
	for n, k := range m.keys {
		if units, cost := n.take(); units > 0 {
			k.deny(float64(units), cost, now)
			k.seen = now
		}
		if k.given > 0 && k.giving == 0 && m.receiver.Landed(n.key, k.gave) {
			k.landed()
		}
		for i, o := range m.others {
			if !o.warm {
				k.leave(i, now+int64(pace))
			}
		}
		if !k.held && (k.acquiring || now < k.again || !k.due(now)) {
			m.forget(k, now)
			continue
		}
		left := m.receiver.Left(n.key)
		if k.held && k.idle() && (m.ending || k.spent(now) || !k.wants(left, now)) {
			k.permit.Release()
			k.held = false
		}
		switch {
		case m.ending || m.flights >= mostFlights || !k.mayAsk(left, now):
		case k.held:
			k.terms = m.terms.Load()
			if fleet == 0 {
				fleet = m.receiver.Fleet()
			}
			for i, units := range k.ask(left, fleet, now) {
				if units > 0 {
					m.askOther(k, i, units)
				}
			}
		default:
			m.acquire(k, now)
		}
	}
}

// forget forgets a key that was not denied lately.
func (m *mover) forget(k *moving, now int64) {
	if k.idle() && !k.acquiring && now-k.seen >= int64(notedFor) {
		delete(m.keys, k.note)
		m.notes.remove(k.note)
	}
}

// fly sends a message in a goroutine. message returns what the mover does at its end.
func (m *mover) fly(message func() event) {
	m.flights++
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		e := message()
		do := e.do
		e.do = func(now int64) {
			m.flights--
			do(now)
		}
		select {
		case m.events <- e:
		case <-m.ctx.Done():
			e.lose()
		}
	}()
}

// warmUp connects to the regions that have not answered yet. The first message on a connection takes several round
// trips, and would be late as an ask.
func (m *mover) warmUp(now int64) {
	for _, o := range m.others {
		if len(m.keys) == 0 || m.ending || o.warm || o.warming || now < o.again {
			continue
		}
		o.warming = true
		m.count.asks.Add(1)
		m.fly(func() event {
			ctx, cancel := context.WithTimeout(m.ctx, warmFor)
			defer cancel()
			err := o.limiter.Ready(ctx)
			return event{func(now int64) {
				o.warming, o.warm = false, err == nil
				if err != nil {
					o.again = now + int64(backoffMost)
					m.count.failed.Add(1)
					m.say(o, msgSilent, err)
				}
			}, func() {}}
		})
	}
}

// acquire asks for the permit of a key.
func (m *mover) acquire(k *moving, now int64) {
	k.acquiring = true
	m.fly(func() event {
		permit, res, err := m.permits.Acquire(m.ctx, k.note.key)
		return event{func(later int64) {
			k.acquiring = false
			switch by := res.Source; {
			case err == nil && res.Allowed && !res.Shadowed && (by == hybridlimit.SourceRedis || by == hybridlimit.SourceLease):
				k.permit, k.held = permit, true
				k.permitted(now)
				return
			case err != nil && !errors.Is(err, hybridlimit.ErrClosed) && m.ctx.Err() == nil:
				m.say(m.others[0], msgNoPermit, err)
			}
			permit.Release()
			// Another process has it, or Redis is away or learns. The more processes ask, the less often each asks.
			wait := min(max(int64(200*time.Millisecond), m.receiver.Fleet()*int64(10*time.Millisecond)), int64(5*time.Second))
			k.again = later + wait/2 + rand.Int64N(wait)
		}, permit.Release}
	})
}

// askOther asks another region for units.
func (m *mover) askOther(k *moving, i int, units int64) {
	o, floor := m.others[i], k.terms.donors[i].floor
	m.count.asks.Add(1)
	m.fly(func() event {
		ctx, cancel := context.WithTimeout(m.ctx, askFor)
		defer cancel()
		taken, left, err := o.donor.TakeAbove(ctx, k.note.key, units, floor)
		return event{func(now int64) {
			if err != nil {
				m.count.failed.Add(1)
				k.failed(i, now)
				m.say(o, msgSilent, err)
				return
			}
			give := k.answer(i, taken, left, now)
			m.count.late.Add(taken - give)
			if give > 0 {
				m.give(k, give)
			}
		}, func() { m.count.late.Add(taken) }}
	})
}

// give gives units to this region.
func (m *mover) give(k *moving, units int64) {
	k.giving++
	m.fly(func() event {
		at, counts, err := m.receiver.Give(m.ctx, k.note.key, units)
		switch {
		case err != nil:
			m.count.lost.Add(units)
		case counts:
			m.count.moved.Add(units)
		default:
			m.count.late.Add(units)
		}
		return event{func(int64) { k.giving, k.gave = k.giving-1, max(k.gave, at) }, func() {}}
	})
}

// prime acquires a permit of no key, so that Redis grants others at once later.
func (m *mover) prime(next *time.Timer) {
	m.fly(func() event {
		permit, res, err := m.permits.Acquire(m.ctx, primeKey)
		return event{func(int64) {
			permit.Release()
			if err == nil && res.Allowed {
				next.Reset(primeEvery)
			} else {
				next.Reset(primeAgain)
			}
		}, permit.Release}
	})
}

// say logs a failure, at most once a minute for each region.
func (m *mover) say(o *other, msg string, err error) {
	if skipped, ok := o.line.Due(); ok {
		attrs := []any{slog.String("limiter", m.cfg.Name), slog.String("region", o.name), slog.Any("error", err)}
		if skipped > 0 {
			attrs = append(attrs, slog.Int64("skipped", skipped))
		}
		m.home.Logger.Warn(msg, attrs...)
	}
}
