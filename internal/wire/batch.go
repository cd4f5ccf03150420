package wire

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// MaxOps is the largest number of ops that a batch should carry. A batch of that size keeps Redis busy for 0.7 to 1.2
// ms (docs/decisions/0001-batch-size.md), and all other clients of Redis wait that long.
const MaxOps = 64

// View is a key's state as a process last saw it, in the units of Redis.
type View = algo.View

// Answer is the answer to an op.
type Answer = algo.Answer

// Op is one exchange for one key.
type Op struct {
	Key   string            // full Redis key, from lua.Names.State
	Limit hybridlimit.Limit // sent with each op, since processes may have different limits for a while
	Span  algo.Span         // of a calendar window: the sender's; zero of FromUse: the sender knows none
	algo.Op
}

// counted is a limit as an op sends it.
type counted struct {
	limit hybridlimit.Limit
	span  algo.Span
}

// Envelope makes Redis apply a batch once, however often it is sent.
type Envelope struct {
	Key   string        // from lua.Names.Envelope
	Epoch string        // from lua.Names.Epoch
	Seq   int64         // 1, 2, 3... per process and tag; 0: no envelope
	TTL   time.Duration // longer than the batch is retried
}

// EncodeBatch returns the KEYS and ARGV of a batch. All keys must share a slot. There may be fewer keys than ops: plain
// asks of one key share a text.
func EncodeBatch(env Envelope, ops []Op) (keys []string, argv []string) {
	if env.Seq > 0 {
		if div, short := allShort(ops); short {
			return encodeShort(env, ops, div)
		}
	} else if allPlain(ops) {
		return encodePlain(ops)
	}
	return encode(env, ops, "")
}

// EncodeAll is EncodeBatch for an all-or-nothing batch: Redis grants every ask, or none (Reply.Refused). Each op may
// only ask, without Partial and without a delay. The ops of one key must have one limit. Redis does not apply any other
// batch (ErrRefused).
func EncodeAll(ops []Op) (keys []string, argv []string) {
	if allPlain(ops) && oneText(ops) {
		keys, argv = encodePlain(ops)
		return keys, slices.Insert(argv, 0, headAll)
	}
	return encode(Envelope{}, ops, " all")
}

func encode(env Envelope, ops []Op, flag string) (keys []string, argv []string) {
	keys = make([]string, 0, len(ops)+2)
	if env.Seq > 0 {
		keys = append(keys, env.Key, env.Epoch)
	}
	limits := make([]counted, 0, 1)
	index := func(l counted) int {
		for i, have := range limits {
			if have == l {
				return i + 1
			}
		}
		limits = append(limits, l)
		return len(limits)
	}
	texts := make([]string, len(ops))
	buf := make([]byte, 0, 96)
	for i, op := range ops {
		keys = append(keys, op.Key)
		buf = appendOp(buf[:0], index(counted{op.Limit, op.Span}), op.Op)
		texts[i] = string(buf)
	}
	argv = make([]string, 0, 1+len(limits)+len(ops))
	argv = append(argv, "1 "+strconv.FormatInt(env.Seq, 10)+" "+
		strconv.FormatInt(env.TTL.Milliseconds(), 10)+" "+strconv.Itoa(len(limits))+flag)
	for _, l := range limits {
		argv = append(argv, string(appendLimit(buf[:0], l)))
	}
	return keys, append(argv, texts...)
}

func appendLimit(buf []byte, c counted) []byte {
	l := c.limit
	kind := algo.KindOf(l.Algorithm)
	if kind == algo.KindCalendar {
		return appendCalendar(buf, algo.WindowOf(l).In(c.span))
	}
	buf = append(buf, kind.Letter())
	switch kind {
	case algo.KindFixed, algo.KindSliding:
		w := algo.WindowOf(l)
		return appendInts(buf, w.Rate, w.Period, w.Tick)
	case algo.KindLog:
		w := algo.LogOf(l)
		return appendInts(buf, w.Rate, w.Period, 1)
	default:
		b := algo.BucketOf(l)
		return appendInts(buf, b.Unit, b.Refill, b.Cap)
	}
}

// appendCalendar appends a calendar window as the sender computes it.
func appendCalendar(buf []byte, w algo.Window) []byte {
	s := w.Span()
	if w.FromUse {
		return appendInts(append(buf, 'u'), w.Rate, s.Begin, s.Length)
	}
	return appendInts(append(buf, algo.KindCalendar.Letter()), w.Rate, s.Begin, s.Begin+s.Length)
}

func appendOp(buf []byte, limit int, op algo.Op) []byte {
	buf = strconv.AppendInt(buf, int64(limit), 10)
	buf = appendInts(buf, op.Owed, flags(op.Partial, op.Lost, op.Reset), op.Demand, op.Div)
	buf = appendInts(buf, op.View.Born, op.View.Level, op.View.At, op.Gen, op.Had, op.Keep)
	buf = appendInts(buf, op.Asks...)
	var turn int64 // without a next poll it has no effect
	switch {
	case op.Div > 0 && op.Upper:
		turn = 1
	case op.Div > 0 && op.Queued:
		turn = 2
	}
	for _, more := range [...]struct {
		letter byte
		value  int64
	}{
		{'w', op.Win},
		{'r', op.Refund},
		{'b', op.RefundAt},
		{'d', op.MaxDelay},
		{'p', op.View.Prev},
		{'n', op.View.Next},
		{'s', op.Since},
		{'k', op.Back},
		{'a', flags(op.Ahead)},
		{'f', op.Floor},
		{'u', turn},
		{'l', op.MaxLife},
		{'o', op.Used},
		{'e', op.UsedBy},
	} {
		if more.value > 0 {
			buf = append(buf, ' ', more.letter)
			buf = strconv.AppendInt(buf, more.value, 10)
		}
	}
	if op.ID != "" {
		buf = append(buf, " i"...)
		buf = append(buf, url.QueryEscape(op.ID)...)
	}
	return buf
}

func appendInts(buf []byte, values ...int64) []byte {
	for _, v := range values {
		buf = append(buf, ' ')
		buf = strconv.AppendInt(buf, v, 10)
	}
	return buf
}
