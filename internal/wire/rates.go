package wire

import (
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/ratelease"
)

const (
	rateInts  = 10 // values of the reply to an op of a leased rate
	mostMicro = ratelease.Largest * ratelease.Micro
)

// MaxRates is the largest number of ops in a message about leased rates.
const MaxRates = 64

// EncodeRates returns ARGV of the script Rates. KEYS has two keys for each op: see lua/rates.lua.
func EncodeRates(ops []ratelease.Op) []string {
	argv := make([]string, 0, len(ops))
	buf := make([]byte, 0, 160)
	for _, op := range ops {
		buf = strconv.AppendInt(append(buf[:0], "1 "...), op.Number, 10)
		buf = appendInts(buf, op.Procs, op.Demand, op.Span, op.Have, op.Back, op.Spilt, op.Want, op.Wish, op.Most, op.Owed, op.Acked, op.Rate, op.Burst)
		buf = appendInts(buf, op.View.Born, op.View.At, op.View.Level, op.View.Out, op.View.Rate, flags(op.Reset))
		argv = append(argv, string(buf))
	}
	return argv
}

// RateAnswer is the answer to an op of a leased rate.
type RateAnswer struct {
	ratelease.Answer
	Stale bool // Redis has a later op of this process, and did nothing
}

// DecodeRates reads the reply to a message about leased rates. A reply that the script cannot have given is ErrReply.
func DecodeRates(raw any, ops []ratelease.Op) ([]RateAnswer, error) {
	v := valuesOf(raw, rateInts*len(ops), "leased rates")
	answers := make([]RateAnswer, len(ops))
	for i, op := range ops {
		a := &answers[i]
		a.Stale = v.between(0, 1) == 0
		amount := func() int64 { return v.between(0, mostMicro) }
		a.Rate, a.Depth, a.Units, a.Held = amount(), amount(), amount(), v.between(0, 3*mostMicro)
		a.Next, a.Born, a.At = v.between(0, ratelease.Life), v.natural(), v.natural()
		a.Level, a.Out = v.between(-mostMicro, mostMicro), v.between(0, 4*mostMicro)
		if !a.Stale && (a.Rate > op.Rate || a.Units > op.Burst || a.Next == 0 || a.Born == 0) {
			v.fail(a.Answer)
		}
	}
	return result(answers, v.err)
}

// RateState is the part of the state of a leased rate that is for people. Amounts are millionths of a unit.
type RateState struct {
	ratelease.Terms
	Last   int64 // µs of Redis time, for which Level holds
	Level  int64 // left in Redis; it may be negative
	Leased int64 // rates that processes have
	Depth  int64 // the most that they have in hand
}

// DecodeRate reads the state of a leased rate. It returns false for text that the script cannot have written.
func DecodeRate(text string) (s RateState, ok bool) {
	var n [18]int64
	fields := strings.Split(text, " ")
	if len(fields) <= len(n) || fields[0] != "1" {
		return s, false
	}
	if _, ok = readFields(fields[len(n)+1:]); !ok { // of later versions
		return s, false
	}
	for i, f := range fields[1 : len(n)+1] {
		digits, minus := strings.CutPrefix(f, "-")
		if n[i], ok = natural(digits); !ok || minus && i != 3 {
			return s, false
		}
		if minus {
			n[i] = -n[i]
		}
	}
	s = RateState{Terms: ratelease.Terms{Rate: n[4], Burst: n[5]}, Last: n[1], Level: n[3], Leased: n[6] + n[7], Depth: n[8] + n[9]}
	return s, n[4] > 0 && n[5] > 0
}
