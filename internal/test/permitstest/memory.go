// Package permitstest is Redis's side of the permits of a fleet in Go: lua/permits.lua, line for line. A differential
// test in lua/ compares the two, and the search over schedules in internal/permits runs on it.
package permitstest

import (
	"maps"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// Memory is the memory of one tag, with the keys of the tag. Times are µs of Redis's clock.
type Memory struct {
	Epoch   int64 // the time at which the memory began; 0: it begins with the next message
	Learn   int64 // nothing is granted before, at no key
	Sweep   int64 // the numbers of silent processes are forgotten then
	Expires int64
	Numbers map[string]Number // by process
	Keys    map[string]*Key
}

// Number is the last message of a process.
type Number struct{ Number, At int64 }

// Key is the state of one key.
type Key struct {
	Total    int64  // the sum of Held
	Scarce   int64  // a process was refused within a second before
	Starving string // a process without a permit that was refused, and was granted none since; "": none
	Since    int64  // it was refused then
	Last     int64  // and the last time then
	Learn    int64  // nothing is granted before
	Expires  int64
	Held     map[string]Holding // by process; none without permits
}

// Holding is what one process holds at a key, and the message that wrote it.
type Holding struct{ Permits, Number int64 }

// Expire drops what has expired, as Redis does between two messages.
func (m *Memory) Expire(now int64) {
	maps.DeleteFunc(m.Keys, func(_ string, k *Key) bool { return now >= k.Expires })
	if now >= m.Expires {
		m.Epoch, m.Learn, m.Sweep, m.Numbers = 0, 0, 0, nil
	}
}

// Receive applies a message. keys has the name of the key of each op, and no name twice. The error is permits.ErrStale,
// or nil.
func (m *Memory) Receive(now int64, keys []string, msg permits.Message) (permits.Answer, error) {
	last := m.Numbers[msg.Process].Number
	if msg.Number <= last {
		return permits.Answer{}, permits.ErrStale
	}
	if m.Epoch == 0 {
		m.Epoch, m.Learn, m.Sweep = now, now+permits.LearnPeriods*msg.Period, now+permits.Hour
	}
	if m.Learn > now+permits.LearnPeriods*permits.MaxPeriod { // the clock was put back
		m.Learn = now + permits.LearnPeriods*msg.Period
	}
	m.Sweep = min(m.Sweep, now+permits.Hour)
	gap := msg.Epoch != 0 && (msg.Epoch != m.Epoch || last < msg.After)
	if gap { // writes are lost: the processes may hold more than is booked
		m.Learn = max(m.Learn, now+permits.LearnPeriods*msg.Period)
	}
	a := permits.Answer{Epoch: m.Epoch}
	for i, op := range msg.Ops {
		a.Replies = append(a.Replies, m.hold(now, keys[i], op, msg, gap))
	}
	if now >= m.Sweep {
		maps.DeleteFunc(m.Numbers, func(_ string, n Number) bool { return n.At < now-permits.Hour || n.At > now+permits.Hour })
		m.Sweep = now + permits.Hour
	}
	if m.Numbers == nil {
		m.Numbers = map[string]Number{}
	}
	m.Numbers[msg.Process] = Number{msg.Number, now}
	m.Expires = now + permits.MemoryTTL
	return a, nil
}

// hold replaces the holding of a message's process at one key, and grants.
func (m *Memory) hold(now int64, key string, op permits.Op, msg permits.Message, gap bool) permits.Reply {
	k := m.Keys[key]
	if k == nil {
		k = &Key{Held: map[string]Holding{}}
	}
	if k.Scarce > now+permits.Second { // the clock was put back
		k.Scarce = now + permits.Second
	}
	if k.Learn > now+permits.LearnPeriods*permits.MaxPeriod {
		k.Learn = now + permits.LearnPeriods*msg.Period
	}
	if now >= k.Last+permits.Starves || k.Last > now {
		k.Starving, k.Since, k.Last = "", 0, 0
	}
	part := op.Limit / op.Procs
	own, there := k.Held[msg.Process]
	lost := gap || op.Reset || op.Had > 0 && !there && !op.Rejoin
	if lost {
		k.Learn = max(k.Learn, now+permits.LearnPeriods*msg.Period)
	}
	for _, c := range op.Claims {
		if h, held := k.Held[c.Process]; held && h.Number == c.Number && c.Process != msg.Process {
			k.Total -= h.Permits
			delete(k.Held, c.Process)
		}
	}
	if op.Reset {
		k.Held = map[string]Holding{}
		if there {
			k.Held[msg.Process] = own
		}
		k.Total = own.Permits
	}
	others := k.Total - own.Permits
	free := op.Limit - others - op.Keep
	granted, learns := int64(0), max(0, max(m.Learn, k.Learn)-now)
	marked := k.Starving == msg.Process
	starving := k.Starving != "" && !marked && k.Last-k.Since >= permits.Second
	leaves := starving && part > 0 && op.Keep >= part // to the starving one
	if learns == 0 && !leaves {
		granted = grant(op, free)
	}
	r := permits.Reply{
		Booked: op.Keep + granted,
		Usable: max(0, min(op.Keep, op.Limit-others)) + granted,
		Free:   free - granted,
		Learns: learns,
		Lost:   lost,
	}
	if granted < op.Want && !leaves {
		k.Scarce = now + permits.Second
		r.Holders = k.others(msg.Process, now)
		if op.Keep == 0 && granted == 0 && op.First == 1 && learns == 0 && part > 0 && (marked || k.Starving == "") {
			if !marked {
				k.Starving, k.Since = msg.Process, now
			}
			k.Last = now
		}
	}
	r.Starving = starving
	r.Scarce = now < k.Scarce
	if marked && r.Booked > 0 {
		k.Starving, k.Since, k.Last = "", 0, 0
	}
	k.Total = others + r.Booked
	if r.Booked > 0 {
		k.Held[msg.Process] = Holding{r.Booked, msg.Number}
	} else {
		delete(k.Held, msg.Process)
	}
	m.keep(now, key, k)
	return r
}

// grant divides the free permits among the waiting calls of one process and its spare permits.
func grant(op permits.Op, free int64) int64 {
	if free <= 0 || free < op.First {
		return 0
	}
	return min(free, op.Want+min(op.Spare, free/(2*op.Procs)))
}

// others returns the holders without one process, by name: each second other ones, if there are too many for one reply.
func (k *Key) others(process string, now int64) []permits.Claim {
	var holders []permits.Claim
	for p, h := range k.Held {
		if p != process {
			holders = append(holders, permits.Claim{Process: p, Number: h.Number})
		}
	}
	slices.SortFunc(holders, func(a, b permits.Claim) int { return strings.Compare(a.Process, b.Process) })
	n := len(holders)
	if n <= permits.MaxHolders {
		return holders
	}
	first := int(now / permits.Second * permits.MaxHolders % int64(n))
	return append(holders, holders...)[first:][:permits.MaxHolders]
}

// keep writes the state of a key, or deletes it if it says nothing.
func (m *Memory) keep(now int64, key string, k *Key) {
	switch {
	case len(k.Held) > 0:
		k.Expires = now + permits.HeldTTL
	case now < k.Scarce || now < k.Learn:
		k.Expires = now + permits.FreeTTL
	default:
		delete(m.Keys, key)
		return
	}
	if m.Keys == nil {
		m.Keys = map[string]*Key{}
	}
	m.Keys[key] = k
}

// Clone returns a copy, such as that of a replica.
func (m *Memory) Clone() *Memory {
	c := *m
	c.Numbers, c.Keys = maps.Clone(m.Numbers), map[string]*Key{}
	for name, k := range m.Keys {
		copied := *k
		copied.Held = maps.Clone(k.Held)
		c.Keys[name] = &copied
	}
	return &c
}
