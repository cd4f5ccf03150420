package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
)

// fault is a fault of Redis that a page asks for.
type fault struct {
	Action string `json:"action"`
	Ms     int64  `json:"ms"`     // the delay of slow
	ForMs  int64  `json:"for_ms"` // the length of kill or hang; 0: until something else is asked for
}

const (
	maxSlow = 1000   // the longest delay of a command, ms
	maxFor  = 60_000 // the longest outage that ends by itself, ms
)

func (q fault) violations() adapter.Violations {
	var bad adapter.Violations
	switch q.Action {
	case "kill", "hang", "wipe", "restore":
		bad.AddIf(q.Ms != 0, "ms", q.Ms, "is for slow only")
	case "slow":
		bad.AddIf(q.Ms < 1 || q.Ms > maxSlow, "ms", q.Ms, "must be 1 to 1000")
	default:
		bad.Add("action", q.Action, "must be kill, hang, slow, wipe or restore")
	}
	ends := q.Action == "kill" || q.Action == "hang"
	bad.AddIf(q.ForMs != 0 && !ends, "for_ms", q.ForMs, "is for kill and hang only")
	bad.AddIf(ends && (q.ForMs < 0 || q.ForMs > maxFor), "for_ms", q.ForMs, "must be 0 to 60000")
	return bad
}

// inflict injects the fault. It must not be called on the fleet's goroutine.
func (f *fleet) inflict(q fault) error {
	if err := q.violations().Err("playground"); err != nil {
		return err
	}
	if q.Action == "wipe" {
		return f.wipe()
	}
	return f.do(func() error { f.fault(q); return nil })
}

// wipe deletes the playground's keys. It scans all keys of Redis, which may be many, so the fleet continues meanwhile.
func (f *fleet) wipe() error {
	var before int64
	err := f.do(func() error {
		if was, _ := f.store.condition(); was == redisDead && f.store.embedded() {
			return errors.New("playground: a dead Redis cannot be wiped: bring it back first")
		}
		f.watch.lost = true
		before = f.resynced()
		return nil
	})
	if err != nil {
		return err
	}
	if err := f.store.wipe(context.Background()); err != nil {
		return fmt.Errorf("playground: %w", err)
	}
	return f.do(func() error {
		others := ""
		if !f.store.embedded() {
			others = " All other keys are unchanged."
		}
		f.note(kindYou, "Redis is wiped: its data of the fleet is deleted.%s", others)
		f.forgets(before)
		return nil
	})
}

// fault changes the state of Redis, as the fleet's processes see it.
func (f *fleet) fault(q fault) {
	was, _ := f.store.condition()
	f.inFlight.look(time.Now())
	f.backAt = time.Time{}
	length := ""
	if q.ForMs > 0 {
		f.backAt = time.Now().Add(time.Duration(q.ForMs) * time.Millisecond)
		length = fmt.Sprintf(" for %g s", float64(q.ForMs)/1000)
	}
	switch q.Action {
	case "kill":
		f.store.set(redisDead, 0)
		switch {
		case was == redisDead:
		case f.store.embedded():
			f.note(kindYou, "Redis is killed%s: connections are reset, and its memory is lost.", length)
		default:
			f.note(kindYou, "Redis is cut off%s: connections are reset, and new ones are refused. Redis itself keeps its memory.", length)
		}
	case "hang":
		f.store.set(redisHung, 0)
		if was != redisHung {
			f.note(kindYou, "Redis hangs%s: it accepts commands and does not answer.", length)
		}
	case "slow":
		f.store.set(redisSlow, time.Duration(q.Ms)*time.Millisecond)
		f.note(kindYou, "Redis is slow: each command takes %d ms more.", q.Ms)
		if f.watch.alone != nil {
			f.watch.steady = false
		}
	case "restore":
		f.store.set(redisUp, 0)
		switch {
		case was == redisUp:
		case was == redisDead && f.store.embedded():
			f.note(kindYou, "Redis is back, with nothing in it.")
		case was == redisDead:
			f.note(kindYou, "Redis can be reached again.")
		default:
			f.note(kindYou, "Redis answers normally again.")
		}
	}
	if f.outage() && was != redisDead && was != redisHung {
		f.withoutRedis(time.Now())
	}
	if was == redisDead && f.store.embedded() && q.Action != "kill" {
		f.forgets(f.resynced())
	}
}

// endOutage brings Redis back after an outage with a length.
func (f *fleet) endOutage(now time.Time) {
	if !f.backAt.IsZero() && !now.Before(f.backAt) {
		f.fault(fault{Action: "restore"})
	}
}

// outage reports whether Redis answers no process.
func (f *fleet) outage() bool {
	state, _ := f.store.condition()
	return state == redisDead || state == redisHung
}

// withoutRedis begins to count the units that processes admit alone.
func (f *fleet) withoutRedis(at time.Time) {
	known := int64(f.settings.Processes)
	for p := range f.alive {
		known = min(known, p.limiter.Stats().Fleet)
	}
	f.watch.outage(f.cell(at), known)
}

// slot returns the place of a process.
func (f *fleet) slot(number int) (*process, error) {
	if number < 1 || number > len(f.slots) {
		return nil, invalid("process", number, fmt.Sprintf("must be 1 to %d", len(f.slots)))
	}
	return f.slots[number-1], nil
}

// intervene pauses, resumes, crashes or starts a process.
func (f *fleet) intervene(number int, action string) error {
	s, err := f.slot(number)
	if err != nil {
		return err
	}
	f.inFlight.look(time.Now())
	if from, known := map[string][]string{
		"pause": {"running"}, "resume": {"paused"}, "crash": {"running", "paused"}, "start": {"crashed"},
	}[action]; known && !slices.Contains(from, s.condition()) {
		return fmt.Errorf("playground: process %d is %s: it cannot %s", number, s.condition(), action)
	}
	switch action {
	case "pause":
		s.pause()
		f.note(kindYou, "Process %d is paused: it makes no calls, and its connections stand still.", number)
	case "resume":
		s.resume()
		f.note(kindYou, "Process %d continues.", number)
	case "crash":
		calls := f.inFlight.of(s.flight)
		f.retire([]*process{s}, 0)
		s.crashed = true
		f.note(kindYou, "Process %d has crashed: its leases are wasted, and its owed units (at most its credit) are never counted.%s", number, crashed(calls.sum()))
	case "start":
		p, err := f.newProcess(number)
		if err != nil {
			return err
		}
		f.slots[number-1] = p
		f.note(kindYou, "Process %d is started again. It has no credit before its second heartbeat.", number)
	default:
		return invalid("action", action, "must be pause, resume, crash or start")
	}
	f.steer()
	return nil
}

// crashed returns the text about the calls in flight of a process that crashes.
func crashed(calls int64) string {
	switch calls {
	case 0:
		return ""
	case 1:
		return " Its call in flight has ended: the permit is free for others within 3 s."
	}
	return fmt.Sprintf(" Its %d calls in flight have ended: the permits are free for others within 3 s.", calls)
}

// condition returns running, paused or crashed.
func (s *process) condition() string {
	switch {
	case s.crashed:
		return "crashed"
	case s.frozen.Load():
		return "paused"
	}
	return "running"
}
