package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// fault is what the page asks to be done to Redis.
type fault struct {
	Action string `json:"action"`
	Ms     int64  `json:"ms"` // of slow
}

// maxSlow is the longest delay of a command, ms.
const maxSlow = 1000

func (q fault) violations() hybridlimit.Violations {
	var bad hybridlimit.Violations
	switch q.Action {
	case "kill", "hang", "wipe", "restore":
		if q.Ms != 0 {
			bad.Add("ms", q.Ms, "is for slow only")
		}
	case "slow":
		if q.Ms < 1 || q.Ms > maxSlow {
			bad.Add("ms", q.Ms, "must be 1 to 1000")
		}
	default:
		bad.Add("action", q.Action, "must be kill, hang, slow, wipe or restore")
	}
	return bad
}

// fault does it.
func (f *fleet) fault(q fault) error {
	if err := q.violations().Err("playground"); err != nil {
		return err
	}
	was, _ := f.store.condition()
	switch q.Action {
	case "kill":
		f.store.set(redisDead, 0)
		if was == redisDead {
			return nil
		}
		if f.store.embedded() {
			f.note(kindYou, "Redis is killed: connections are reset, its memory is gone.")
		} else {
			f.note(kindYou, "Redis is cut off: connections are reset, new ones refused. It keeps its memory.")
		}
		f.withoutRedis(was)
	case "hang":
		f.store.set(redisHung, 0)
		f.note(kindYou, "Redis hangs: it takes commands and does not answer.")
		f.withoutRedis(was)
	case "slow":
		f.store.set(redisSlow, time.Duration(q.Ms)*time.Millisecond)
		f.note(kindYou, "Redis is slow: each command takes %d ms more.", q.Ms)
		if f.watch.alone != nil {
			f.watch.steady = false
		}
	case "wipe":
		if was == redisDead && f.store.embedded() {
			return fmt.Errorf("playground: a dead Redis cannot be wiped: bring it back first")
		}
		if err := f.store.wipe(context.Background()); err != nil {
			return fmt.Errorf("playground: %w", err)
		}
		f.note(kindYou, "Redis is wiped: all that it knew of the fleet is gone.")
		f.forgets()
	case "restore":
		f.store.set(redisUp, 0)
		switch {
		case was == redisUp:
			return nil
		case was == redisDead && f.store.embedded():
			f.note(kindYou, "Redis is back, with nothing in it.")
		case was == redisDead:
			f.note(kindYou, "Redis can be reached again.")
		default:
			f.note(kindYou, "Redis answers as it should again.")
		}
	}
	if was == redisDead && f.store.embedded() && q.Action != "kill" {
		f.forgets()
	}
	return nil
}

// withoutRedis begins to count what processes admit alone.
func (f *fleet) withoutRedis(was condition) {
	if was == redisDead || was == redisHung {
		return
	}
	known := int64(f.settings.Processes)
	for _, s := range f.slots {
		if !s.crashed {
			known = min(known, s.limiter.Stats().Fleet)
		}
	}
	f.watch.outage(f.cell(time.Now()), known)
	f.watch.steady = was == redisUp
}

// intervene does something to a process.
func (f *fleet) intervene(number int, action string) error {
	if number < 1 || number > len(f.slots) {
		var bad hybridlimit.Violations
		bad.Add("process", number, fmt.Sprintf("must be 1 to %d", len(f.slots)))
		return bad.Err("playground")
	}
	s := f.slots[number-1]
	wrong := fmt.Errorf("playground: process %d is %s: it cannot %s", number, s.condition(), action)
	switch action {
	case "pause":
		if s.condition() != "running" {
			return wrong
		}
		s.pause()
		f.note(kindYou, "Process %d is paused: it makes no calls, and its connections stand still.", number)
	case "resume":
		if s.condition() != "paused" {
			return wrong
		}
		s.resume()
		f.note(kindYou, "Process %d goes on.", number)
	case "crash":
		if s.crashed {
			return wrong
		}
		f.retire([]*slot{s}, 0)
		s.crashed = true
		f.watch.crashes++
		f.note(kindYou, "Process %d has crashed: what it held is wasted, what it owed (at most C) nobody counts.", number)
	case "start":
		if !s.crashed {
			return wrong
		}
		p, err := f.newProcess(number)
		if err != nil {
			return err
		}
		f.slots[number-1] = &slot{process: p}
		f.note(kindYou, "Process %d is started again. It has no credit before its second heartbeat.", number)
	default:
		var bad hybridlimit.Violations
		bad.Add("action", action, "must be pause, resume, crash or start")
		return bad.Err("playground")
	}
	f.steer()
	return nil
}

// condition is running, paused or crashed.
func (s *slot) condition() string {
	switch {
	case s.crashed:
		return "crashed"
	case s.frozen.Load():
		return "paused"
	}
	return "running"
}
