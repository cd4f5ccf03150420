package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/permits"
)

const (
	heldInts   = 6 // values of the reply to an op of permits
	maxHolder  = maxProcess + intBytes
	maxProcess = 64                             // bytes of an id
	maxHolders = permits.MaxHolders * maxHolder // bytes of the holders of a key in a reply
	maxPermits = 1 << 53
)

// EncodePermits returns KEYS and ARGV of the script Permits. memory is from lua.Names.Holdings, and keys has one from
// lua.Names.Held for each op. All share a slot, and no two keys are equal.
func EncodePermits(memory string, keys []string, m permits.Message) (allKeys, argv []string) {
	allKeys = append(append(make([]string, 0, 1+len(keys)), memory), keys...)
	argv = make([]string, 0, 1+len(m.Ops))
	argv = append(argv, fmt.Sprintf("1 %s %d %d %d %d", m.Process, m.Number, m.After, m.Epoch, m.Period))
	buf := make([]byte, 0, 96)
	for _, op := range m.Ops {
		flags := int64(0)
		if op.Rejoin {
			flags = 1
		}
		if op.Reset {
			flags += 2
		}
		buf = strconv.AppendInt(buf[:0], op.Limit, 10)
		buf = appendInts(buf, op.Keep, op.Want, op.First, op.Spare, op.Had, op.Procs, flags)
		for _, c := range op.Claims {
			buf = append(append(buf, ' '), c.Process...)
			buf = appendInts(buf, c.Number)
		}
		argv = append(argv, string(buf))
	}
	return allKeys, argv
}

// DecodePermits reads the reply to a message of permits. A reply that the script cannot have given is ErrReply.
func DecodePermits(raw any, m permits.Message) (permits.Answer, error) {
	list, ok := raw.([]any)
	if !ok || len(list) != 1+heldInts*len(m.Ops) {
		return permits.Answer{}, fmt.Errorf("%w: the answer to permits is a %T of %d elements", ErrReply, raw, len(list))
	}
	a := permits.Answer{Replies: make([]permits.Reply, len(m.Ops))}
	epoch, err := naturals(list[:1], 1, "permits")
	if err != nil {
		return permits.Answer{}, err
	}
	a.Epoch = epoch[0]
	for i, op := range m.Ops {
		if a.Replies[i], err = decodeHeld(list[1+heldInts*i:][:heldInts], op); err != nil {
			return permits.Answer{}, fmt.Errorf("op %d: %w", i, err)
		}
	}
	return a, nil
}

// decodeHeld reads the reply to one op.
func decodeHeld(part []any, op permits.Op) (permits.Reply, error) {
	var v [heldInts - 1]int64
	for i := range v {
		n, ok := part[i].(int64)
		if !ok || n > maxPermits || n < -maxPermits {
			return permits.Reply{}, fmt.Errorf("%w: element %d of the answer to permits is %v", ErrReply, i, part[i])
		}
		v[i] = n
	}
	r := permits.Reply{Booked: v[0], Usable: v[1], Free: v[2], Learns: v[3], Scarce: v[4]&1 > 0, Lost: v[4]&2 > 0, Starving: v[4]&4 > 0}
	granted := r.Booked - op.Keep
	if v[4] < 0 || v[4] > 7 || r.Learns < 0 || granted < 0 || granted > op.Want+op.Spare || r.Usable < granted || r.Usable > r.Booked || granted > 0 && r.Free < 0 {
		return permits.Reply{}, fmt.Errorf("%w: %v in answer to a keep of %d, a want of %d and a spare of %d", ErrReply, v, op.Keep, op.Want, op.Spare)
	}
	text, ok := part[heldInts-1].(string)
	if !ok || len(text) > maxHolders || text != "" && granted >= op.Want {
		return permits.Reply{}, fmt.Errorf("%w: the holders in the answer to permits are a %T of %d bytes", ErrReply, part[heldInts-1], len(text))
	}
	if text == "" {
		return r, nil
	}
	words := strings.Split(text, " ")
	if len(words)%2 != 0 {
		return permits.Reply{}, fmt.Errorf("%w: %d words name the holders in the answer to permits", ErrReply, len(words))
	}
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseUint(words[i+1], 10, 63)
		if err != nil || n > maxPermits || !isProcess(words[i]) {
			return permits.Reply{}, fmt.Errorf("%w: %q and %q name a holder in the answer to permits", ErrReply, words[i], words[i+1])
		}
		r.Holders = append(r.Holders, permits.Claim{Process: words[i], Number: int64(n)})
	}
	return r, nil
}

// isProcess reports whether text can be the id of a process.
func isProcess(text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_' && c != '-' {
			return false
		}
	}
	return text != "" && len(text) <= maxProcess
}

// Holding is the part of a key's state that is about all processes. Times are µs of Redis's clock.
type Holding struct {
	Total  int64 // permits that all processes hold
	Scarce int64 // a process was refused in the second before
	Learn  int64 // Redis grants nothing before
}

// DecodeHolding reads the field ” of a key of permits. It returns false for text that the script cannot have written.
func DecodeHolding(text string) (h Holding, ok bool) {
	fields := strings.Split(text, " ")
	if len(fields) != 4 || fields[0] != "1" {
		return h, false
	}
	for i, to := range []*int64{&h.Total, &h.Scarce, &h.Learn} {
		n, err := strconv.ParseUint(fields[i+1], 10, 63)
		if err != nil || n > maxReply {
			return Holding{}, false
		}
		*to = int64(n)
	}
	return h, true
}
