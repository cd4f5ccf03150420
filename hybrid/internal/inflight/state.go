package inflight

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
)

// State is what this process knows of a key.
type State struct {
	Tag     int
	Limit   int64 // permits
	Own     bool  // Limit is the key's own, by LimitFor
	Known   bool  // the key is in memory
	Running int64 // permits that calls of this process use
	Held    int64 // permits that Redis has for this process
	Usable  int64 // of Held; calls may use them
	Waiting int64 // permits that waiting calls need
	Free    int64 // permits that were left in Redis at its last answer
	Share   int64 // permits that the fallback gives this process
	Learns  bool  // Redis learns the permits of the running calls
	Member  bool  // the process may use the permits that it holds
	Until   int64 // ns: the end of the membership without another heartbeat; 0: unknown

	ready bool // the process holds a permit for a call
	away  bool // decisions must do without Redis
}

// Look returns the state of a key. It changes nothing, and fails as Acquire does.
func (l *Limiter) Look(key string) (State, error) {
	if err := l.control.Check(key, 1, l.MaxKeyBytes); err != nil {
		return State{}, err
	}
	most, own, err := l.limitOf(key)
	if err != nil {
		return State{}, err
	}
	now := l.clock.Now()
	e, known := &entry{lim: l, limit: most, tag: l.tag(key)}, false
	s, hash := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.find(hash, key); have != nil {
		e, known = have, true
	}
	c := l.conditions(e, now)
	return State{
		Tag: e.tag, Limit: most, Own: own, Known: known, Running: e.Used(), Held: e.Booked(), Usable: e.Usable(), Waiting: e.Waiting(),
		Free: e.Free(), Share: l.share(&c), Learns: e.Learns(now), Member: c.Live(now), Until: c.Until, ready: e.Ready(&c, now), away: c.Away,
	}, nil
}

// Explain returns the outcome of a call for one permit, "allow", "deny" or "ask", and the reason.
func (i *State) Explain(s control.Switch, own bool) (outcome, because string) {
	who := "the fleet"
	if own {
		who = "this process"
	}
	alone := "Redis does not answer"
	switch {
	case i.Learns:
		alone = "Redis has lost its state and learns the permits of the running calls"
	case !i.Member:
		alone = "no heartbeat of this process was answered in time"
	}
	switch {
	case s == control.SwitchAllowAll:
		return "allow", "the switch of " + who + " is allow_all: no limit counts"
	case s == control.SwitchDenyAll:
		return "deny", "the switch of " + who + " is deny_all"
	case i.Limit == Unlimited:
		return "allow", "the limit is unlimited"
	case i.Limit == 0:
		return "deny", "the limit is blocked"
	case i.ready:
		return "allow", fmt.Sprintf("this process holds %s and its running calls use %d", count(i.Usable), i.Running)
	case i.away || i.Learns || !i.Member:
		if i.Running < i.Share && i.Waiting == 0 {
			return "allow", fmt.Sprintf("%s, and the fallback gives this process %s, of which running calls use %d", alone, count(i.Share), i.Running)
		}
		return "deny", fmt.Sprintf("%s, the fallback gives this process %s, and running calls use %d", alone, count(i.Share), i.Running)
	case i.Waiting > 0:
		return "ask", fmt.Sprintf("other calls wait for %s already, and running calls of this process use %d", count(i.Waiting), i.Running)
	}
	return "ask", fmt.Sprintf("the running calls of this process use %s, and it holds no other one; Redis had %d free at its last answer", count(i.Running), i.Free)
}

func count(n int64) string {
	if n == 1 {
		return "1 permit"
	}
	return fmt.Sprintf("%d permits", n)
}

// Running returns the number of permits of a key that calls of this process use.
func (l *Limiter) Running(key string) int64 {
	s, hash := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(hash, key); e != nil {
		return e.Used()
	}
	return 0
}

// Len returns the number of keys in memory.
func (l *Limiter) Len() int { return int(l.keys.Load()) }

// Sums returns the permits that calls use, that Redis has for this process, and that waiting calls need.
func (l *Limiter) Sums() (running, held, waiting int64) {
	l.each(func(e *entry) {
		e.shard.mu.Lock()
		running, held, waiting = running+e.Used(), held+e.Booked(), waiting+e.Waiting()
		e.shard.mu.Unlock()
	})
	return running, held, waiting
}
