package wire

import (
	"fmt"
	"strconv"
	"time"
)

// Flag is the fleet's switch of a limit, as Redis keeps it. What the number
// means is for package hybrid to say. The zero Flag is that of a limit of which
// nobody has ever set one.
type Flag struct {
	Switch int64 // below 10⁹
	At     int64 // µs of Redis time at which it was set; of two, the later stands
}

// Pulse is what a process says with a heartbeat.
type Pulse struct {
	Fleet   string        // key, from Names.Fleet
	Switch  string        // key, from Names.Switch
	Process string        // id
	Expiry  time.Duration // after which a process that is silent is gone
	Leave   bool          // takes the process out instead
	Seen    Flag          // the last that the process was told: a Redis that lost it hears of it again
	TTL     time.Duration // of the flag, renewed once half of it is over
}

// EncodePulse returns KEYS and ARGV of the script Fleet. Both keys share a slot.
func EncodePulse(p Pulse) (keys, argv []string) {
	leave := "0"
	if p.Leave {
		leave = "1"
	}
	return []string{p.Fleet, p.Switch}, []string{
		p.Process, strconv.FormatInt(p.Expiry.Microseconds(), 10), leave,
		strconv.FormatInt(p.Seen.Switch, 10), strconv.FormatInt(p.Seen.At, 10), strconv.FormatInt(p.TTL.Milliseconds(), 10),
	}
}

// Beat is the answer to a heartbeat.
type Beat struct {
	Alive  int   // processes
	Before int64 // µs of Redis time of this process's last beat that Redis knows of; 0: of none
	Now    int64 // µs of Redis time of this one
	Flag   Flag  // the fleet's switch
}

// DecodeBeat reads the reply to a heartbeat, and trusts nothing: what the
// script cannot have said is ErrReply.
func DecodeBeat(raw any) (Beat, error) {
	v, err := naturals(raw, 5, "heartbeat")
	if err != nil {
		return Beat{}, err
	}
	return Beat{Alive: int(v[0]), Before: v[1], Now: v[2], Flag: Flag{v[3], min(v[4], v[2])}}, nil
}

// EncodeSwitch returns KEYS and ARGV of the script SetSwitch for the key of
// Names.Switch. It lives for ttl unless heartbeats renew it.
func EncodeSwitch(key string, to int64, ttl time.Duration) (keys, argv []string) {
	return []string{key}, []string{strconv.FormatInt(to, 10), strconv.FormatInt(ttl.Milliseconds(), 10)}
}

// EncodeSwitchRead is EncodeSwitch for reading only.
func EncodeSwitchRead(key string) (keys, argv []string) {
	return []string{key}, []string{"", "0"}
}

// DecodeSwitch reads the reply to what EncodeSwitch or EncodeSwitchRead made,
// as DecodeBeat does its own.
func DecodeSwitch(raw any) (Flag, error) {
	v, err := naturals(raw, 2, "switch")
	if err != nil {
		return Flag{}, err
	}
	return Flag{v[0], v[1]}, nil
}

// naturals are n integers from 0 to maxReply, and no more.
func naturals(raw any, n int, what string) ([]int64, error) {
	list, ok := raw.([]any)
	if !ok || len(list) != n {
		return nil, fmt.Errorf("%w: %s answered with a %T of %d", ErrReply, what, raw, len(list))
	}
	out := make([]int64, n)
	for i := range out {
		if out[i], ok = list[i].(int64); !ok || out[i] < 0 || out[i] > maxReply {
			return nil, fmt.Errorf("%w: element %d of a %s's answer is %v", ErrReply, i, what, list[i])
		}
	}
	return out, nil
}
