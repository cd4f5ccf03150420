package wire

import (
	"fmt"
	"strconv"
	"time"
)

// Flag is the fleet's switch of a limiter, as Redis keeps it. Package hybrid defines
// the meaning of the number. The zero Flag means that the switch was never set.
type Flag struct {
	Switch int64 // below 10⁹
	At     int64 // µs of Redis time at which it was set; the later of two flags is valid
}

// Pulse is the content of a heartbeat.
type Pulse struct {
	Fleet   string        // key, from lua.Names.Fleet
	Switch  string        // key, from lua.Names.Switch
	Process string        // id
	Expiry  time.Duration // a process that is silent for longer is gone
	Leave   bool          // removes the process instead
	Seen    Flag          // the last flag that the process saw; it restores a flag that Redis has lost
	TTL     time.Duration // of the flag, renewed when less than half of it is left
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
	Alive  int   // number of live processes
	Before int64 // µs of Redis time of this process's previous heartbeat; 0: Redis knows of none
	Now    int64 // µs of Redis time of this heartbeat
	Flag   Flag  // the fleet's switch
}

// DecodeBeat reads the reply to a heartbeat. A reply that the script cannot have
// given is ErrReply.
func DecodeBeat(raw any) (Beat, error) {
	v, err := naturals(raw, 5, "heartbeat")
	if err != nil {
		return Beat{}, err
	}
	return Beat{Alive: int(v[0]), Before: v[1], Now: v[2], Flag: Flag{v[3], min(v[4], v[2])}}, nil
}

// EncodeSwitch returns KEYS and ARGV of the script SetSwitch. key is from
// lua.Names.Switch. The switch expires after ttl unless heartbeats renew it.
func EncodeSwitch(key string, to int64, ttl time.Duration) (keys, argv []string) {
	return []string{key}, []string{strconv.FormatInt(to, 10), strconv.FormatInt(ttl.Milliseconds(), 10)}
}

// EncodeSwitchRead returns KEYS and ARGV of SetSwitch that only read the switch.
func EncodeSwitchRead(key string) (keys, argv []string) {
	return []string{key}, []string{"", "0"}
}

// DecodeSwitch reads the reply of SetSwitch. A reply that the script cannot have
// given is ErrReply.
func DecodeSwitch(raw any) (Flag, error) {
	v, err := naturals(raw, 2, "switch")
	if err != nil {
		return Flag{}, err
	}
	return Flag{v[0], v[1]}, nil
}

// naturals reads a list of exactly n integers from 0 to maxReply.
func naturals(raw any, n int, what string) ([]int64, error) {
	list, ok := raw.([]any)
	if !ok || len(list) != n {
		return nil, fmt.Errorf("%w: the answer to %s is a %T of %d elements", ErrReply, what, raw, len(list))
	}
	out := make([]int64, n)
	for i := range out {
		if out[i], ok = list[i].(int64); !ok || out[i] < 0 || out[i] > maxReply {
			return nil, fmt.Errorf("%w: element %d of the answer to %s is %v", ErrReply, i, what, list[i])
		}
	}
	return out, nil
}
