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
		buf = strconv.AppendInt(buf[:0], op.Limit, 10)
		buf = appendInts(buf, op.Keep, op.Want, op.First, op.Spare, op.Had, op.Procs, flags(op.Rejoin, op.Reset))
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
	v := valuesOf(raw, 1+heldInts*len(m.Ops), "permits")
	a := permits.Answer{Epoch: v.natural(), Replies: make([]permits.Reply, len(m.Ops))}
	for i, op := range m.Ops {
		a.Replies[i] = v.held(op)
	}
	return result(a, v.err)
}

func (v *values) held(op permits.Op) permits.Reply {
	count := func() int64 { return v.between(-maxPermits, maxPermits) }
	r := permits.Reply{Booked: count(), Usable: count(), Free: count(), Learns: v.between(0, maxPermits)}
	flags, granted := v.between(0, 7), r.Booked-op.Keep
	r.Scarce, r.Lost, r.Starving = flags&1 > 0, flags&2 > 0, flags&4 > 0
	few, many := granted < 0 || r.Usable < granted, granted > op.Want+op.Spare || r.Usable > r.Booked
	if few || many || granted > 0 && r.Free < 0 {
		v.fail(r)
	}
	text := v.text(maxHolders)
	if text == "" {
		return r
	}
	words := strings.Split(text, " ")
	v.must(len(words)%2 == 0 && granted < op.Want, text)
	for i := 1; i < len(words); i += 2 {
		n, ok := natural(words[i])
		v.must(ok && isProcess(words[i-1]), text)
		r.Holders = append(r.Holders, permits.Claim{Process: words[i-1], Number: n})
	}
	return r
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
		if *to, ok = natural(fields[i+1]); !ok {
			return Holding{}, false
		}
	}
	return h, true
}
