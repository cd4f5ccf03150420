package permits

import "errors"

// ErrStale is the error for a message whose number is not greater than the last one of its process. It had no effect.
var ErrStale = errors.New("hybridlimit: a message of permits came after its successor")

// Times of Redis, in µs.
const (
	// Second is the time for which a refused process makes a key scarce.
	Second = 1_000_000
	// Starves is the time after a refusal in which other processes leave free permits to a process that has had none
	// for a second. It is the longest time between two asks of a call that waits, so that a starving process counts as
	// one without a gap.
	Starves = Second * 5 / 4
	// Hour is the time after which Redis forgets the number of a silent process.
	Hour = 3600 * Second
	// HeldTTL is the expiry of a key at which a process holds permits. Each process tells its holding every 30 minutes,
	// so the key outlives a step of Redis's clock by an hour.
	HeldTTL = 2 * Hour
	// MaxLimit is the largest limit of an op. It stands for Unlimited, too.
	MaxLimit = 1 << 51
	// FreeTTL is the expiry of a key at which no process holds permits.
	FreeTTL = 120 * Second
	// MemoryTTL is the expiry of the memory of a tag.
	MemoryTTL = 24 * Hour
	// MaxPeriod is the longest period of the heartbeats.
	MaxPeriod = 60 * Second
	// MaxHolders is the most holders of a reply, and the most claims of an op. Of more holders, each second names
	// others.
	MaxHolders = 64
	// LearnPeriods is the number of periods for which Redis learns.
	LearnPeriods = 3
)

// Op is the part of a message about one key. Its counts are absolute, so a lost answer needs no repair.
type Op struct {
	Limit  int64   // permits of the key, as the process knows them
	Keep   int64   // permits that the process keeps, its running calls among them
	Want   int64   // permits that its waiting calls need
	First  int64   // permits that the first of them needs; fewer are not granted; at most Want
	Spare  int64   // permits that it could use soon
	Had    int64   // permits that Redis certainly has for it; 0: a message without an answer may have booked none
	Procs  int64   // processes of the fleet, at least 1
	Rejoin bool    // the process knows that its holding had ended
	Reset  bool    // Redis forgets all holdings of the key, and learns them again
	Claims []Claim // holdings of dead processes, to take off
}

// Claim names the holding of a dead process by the message that wrote it. A holding that a later message wrote is not
// taken off.
type Claim struct {
	Process string // that is dead
	Number  int64  // of the message
}

// Reply is the answer to an Op.
type Reply struct {
	Booked   int64   // Keep, and the permits that are granted
	Usable   int64   // of Booked; the rest is booked for running calls, and free when they end
	Free     int64   // permits that are left; negative: more calls run than the limit allows
	Scarce   bool    // a process was refused in the last second
	Starving bool    // another process, which has no permit, was refused not long ago
	Learns   int64   // µs until Redis grants again, because it may not know all holdings; 0: it grants
	Lost     bool    // Redis had forgotten the holding, or a message of the process
	Holders  []Claim // the other holders, if not all of Want was granted
}

// Message has ops of one process for the keys of one tag. The names of the keys, all different, go beside it.
type Message struct {
	Process string // letters, digits, '-' and '_'
	Number  int64  // greater in each attempt to send; 1 or more
	After   int64  // number of the last message with an answer; 0: none that Redis must know
	Epoch   int64  // of the tag's memory, from the last answer; 0: none that Redis must know
	Period  int64  // of the heartbeats, in µs; Redis learns for three of them
	Ops     []Op   // one for each key
}

// Answer is the answer to a Message.
type Answer struct {
	Epoch   int64   // of the tag's memory
	Replies []Reply // one for each op
}
