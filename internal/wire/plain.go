package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Plain ops: a batch without an envelope whose ops only ask for units of buckets, queues or windows, or one with an
// envelope whose ops only pay or ask, for buckets. It has a short form, which lua/plain.lua and lua/short.lua specify.
// Asks of one key and one limit share a text, and Redis answers all of them by one text: the state after their asks.
// The answers follow from it: decidePlain and decideShort compute them.

// mostPlain is the largest number that has a place in a text of plain asks.
const mostPlain = 1 << 52

// Plain reports whether an op only asks, for whole asks, under a limit whose kind has the short form.
func (op *Op) Plain() bool {
	return op.AsksByView() && op.plainView() && op.wholeAsks() &&
		op.Limit.Algorithm != hybridlimit.AlgSlidingLog && op.Limit.Algorithm != hybridlimit.AlgCalendarWindow
}

// wholeAsks reports whether the asks of an op have a place in a text.
func (op *Op) wholeAsks() bool {
	for _, n := range op.Asks {
		if n < 1 || n >= mostPlain {
			return false
		}
	}
	return !op.Partial && op.Floor == 0 && op.Since >= 0 && op.Since < mostPlain
}

// plainView reports whether the view of an op has a place in its text: there is none, or it is that of a bucket.
func (op *Op) plainView() bool {
	if op.View == (View{}) {
		return true
	}
	v := &op.View
	return op.bucket() && v.Born > 0 && v.Born < mostPlain && v.At >= 0 && v.At < mostPlain &&
		v.Level > -mostPlain && v.Level < mostPlain
}

func (op *Op) bucket() bool {
	return op.Limit.Algorithm == hybridlimit.AlgTokenBucket || op.Limit.Algorithm == hybridlimit.AlgLeakyBucket
}

// Short reports whether an op has a place in a batch with an envelope of the short form.
func (op *Op) Short() bool { return op.pays() || op.asksOnce() }

// asksOnce reports whether an op has one ask, and may tell a view.
func (op *Op) asksOnce() bool {
	return len(op.Asks) == 1 && op.AsksByView() && op.bucket() && op.plainView() && op.wholeAsks()
}

// pays reports whether an op only pays, under a limit whose kind has the short form.
func (op *Op) pays() bool {
	return op.OnlyPays() && op.bucket() && op.plainView() && op.Floor == 0 && !op.Upper && op.Owed < mostPlain &&
		op.Div >= 0 && op.Div < mostPlain && op.Since >= 0 && op.Since < mostPlain
}

// allShort reports whether a batch with an envelope has the short form. div is that of the ops that pay.
func allShort(ops []Op) (div int64, short bool) {
	paid := false
	for i := range ops {
		switch op := &ops[i]; {
		case op.pays():
			if paid && op.Div != div {
				return 0, false
			}
			div, paid = op.Div, true
		case !op.asksOnce():
			return 0, false
		}
	}
	return div, len(ops) > 0
}

func encodeShort(env Envelope, ops []Op, div int64) (keys []string, argv []string) {
	keys, argv = make([]string, 2, len(ops)+2), make([]string, 1, len(ops)+1)
	keys[0], keys[1] = env.Key, env.Epoch
	buf := append(make([]byte, 0, 64), 'e')
	buf = strconv.AppendInt(buf, env.Seq, 16)
	buf = strconv.AppendInt(append(buf, ' '), env.TTL.Milliseconds(), 16)
	buf = strconv.AppendInt(append(buf, ' '), div, 16)
	argv[0] = string(buf)
	for i := range ops {
		op := &ops[i]
		buf = buf[:0]
		if i == 0 || ops[i-1].Limit != op.Limit || ops[i-1].Since != op.Since {
			buf = appendPlainLimit(buf, op)
		}
		if op.Owed > 0 {
			buf = strconv.AppendInt(buf, op.Owed, 16)
		} else {
			buf = strconv.AppendInt(append(buf, '+'), op.Asks[0], 16)
		}
		buf = appendPlainView(buf, op.View)
		keys, argv = append(keys, op.Key), append(argv, string(buf))
	}
	return keys, argv
}

func appendPlainView(buf []byte, v View) []byte {
	if v == (View{}) {
		return buf
	}
	buf = strconv.AppendInt(append(buf, 'v'), v.Born, 16)
	buf = strconv.AppendInt(append(buf, ' '), v.Level, 16)
	return strconv.AppendInt(append(buf, ' '), v.At, 16)
}

func allPlain(ops []Op) bool {
	for i := range ops {
		if !ops[i].Plain() {
			return false
		}
	}
	return len(ops) > 0
}

// together reports whether two ops share a text. An op with a view has one for itself. After a change of the limit,
// only the first op on a key converts the state, so the others may have a later Since.
func together(first, op *Op) bool {
	same := first.Key == op.Key && first.Limit == op.Limit && (first.Since == 0) == (op.Since == 0)
	return same && first.View == (View{}) && op.View == (View{})
}

// lone is the groups of a batch of one op. It is never changed.
var lone = [][]int{{0}}

// groups returns the ops of each text, as indices, in the order of the texts. If the ops of a key cannot share a text,
// the key has several, and Redis decides the batch as it decides a batch that is not plain.
func groups(ops []Op) [][]int {
	if len(ops) == 1 {
		return lone
	}
	last := make(map[string]int, len(ops)) // the last group of a key
	list := make([][]int, 0, len(ops))
	for i := range ops {
		at, ok := last[ops[i].Key]
		if ok && together(&ops[list[at][0]], &ops[i]) {
			list[at] = append(list[at], i)
			continue
		}
		last[ops[i].Key] = len(list)
		list = append(list, []int{i})
	}
	return list
}

func encodePlain(ops []Op) (keys []string, argv []string) {
	list := groups(ops)
	keys, argv = make([]string, len(list)), make([]string, len(list))
	buf := make([]byte, 0, 64)
	var before *Op
	for i, group := range list {
		first := &ops[group[0]]
		buf = buf[:0]
		if before == nil || before.Limit != first.Limit || before.Since != first.Since {
			buf = appendPlainLimit(buf, first)
		}
		before = first
		for j, k := range group {
			if j > 0 {
				buf = append(buf, ',')
			}
			for m, n := range ops[k].Asks {
				if m > 0 {
					buf = append(buf, ' ')
				}
				buf = strconv.AppendInt(buf, n, 16)
			}
		}
		buf = appendPlainView(buf, first.View)
		keys[i], argv[i] = first.Key, string(buf)
	}
	return keys, argv
}

// appendPlainLimit appends the limit of an op, and a space.
func appendPlainLimit(buf []byte, op *Op) []byte {
	l := algo.LimitOf(op.Limit)
	a, b, c := l.Bucket.Unit, l.Bucket.Refill, l.Bucket.Cap
	if w := l.Window; w.Period > 0 {
		a, b, c = w.Period, w.Tick, w.Rate
	}
	buf = strconv.AppendInt(append(buf, '=', l.Kind.Letter()), a, 16)
	if b != 1 {
		buf = strconv.AppendInt(append(buf, 'r'), b, 16)
	}
	buf = strconv.AppendInt(append(buf, ' '), c, 16)
	if op.Since > 0 {
		buf = strconv.AppendInt(append(buf, 's'), op.Since, 16)
	}
	return append(buf, ' ')
}

// answered returns the groups of a batch of plain asks, for a reply with a text for each.
func answered(texts []string, ops []Op) ([][]int, error) {
	if !allPlain(ops) {
		return nil, fmt.Errorf("%w: texts for a batch of another form", ErrReply)
	}
	list := groups(ops)
	if len(texts) != len(list) {
		return nil, fmt.Errorf("%w: %d texts for %d keys", ErrReply, len(texts), len(list))
	}
	return list, nil
}

func decodePlain(texts []string, ops []Op) (Reply, error) {
	list, err := answered(texts, ops)
	if err != nil {
		return Reply{}, err
	}
	answers, now := make([]Answer, len(ops)), int64(0)
	for i, group := range list {
		var asked int64
		for _, k := range group {
			for _, n := range ops[k].Asks {
				asked = min(asked+n, 1<<53)
			}
		}
		limit := algo.LimitOf(ops[group[0]].Limit)
		got, ok := readOutcome(texts[i], limit, asked)
		if i == 0 {
			now = got.now
		}
		if !ok || got.now != now || !decidePlain(limit, got, ops, group, answers) {
			return Reply{}, fmt.Errorf("%w: %.99q is no answer to op %d", ErrReply, texts[i], group[0])
		}
	}
	return Reply{Now: now, Answers: answers}, nil
}

// The first texts of a batch of all or none, and of the reply to it.
const headAll, headNone = "all", "none"

// oneText reports whether each key has one text.
func oneText(ops []Op) bool {
	list := groups(ops)
	seen := make(map[string]bool, len(list))
	for _, group := range list {
		key := ops[group[0]].Key
		if seen[key] {
			return false
		}
		seen[key] = true
	}
	return true
}

// decodeNone reads the texts that answer a batch of all or none of which nothing was done.
func decodeNone(texts []string, ops []Op) (Reply, error) {
	list, err := answered(texts, ops)
	if err != nil {
		return Reply{}, err
	}
	r, fits := Reply{Refused: true, Answers: make([]Answer, len(ops))}, true
	for i, group := range list {
		limit := algo.LimitOf(ops[group[0]].Limit)
		got, ok := readOutcome(texts[i], limit, 1)
		if i == 0 {
			r.Now = got.now
		}
		state, could := before(limit, got)
		if !ok || !could || got.granted != 0 || got.now != r.Now {
			return Reply{}, fmt.Errorf("%w: %.99q is no answer to op %d", ErrReply, texts[i], group[0])
		}
		var want int64
		for _, k := range group {
			for _, n := range ops[k].Asks {
				want = min(want+n, 1<<53)
			}
			_, r.Answers[k], _ = limit.Apply(state, algo.Op{}, got.now)
			_, asked, _ := limit.Apply(state, algo.Op{Asks: []int64{want}}, got.now)
			if r.Answers[k].Retry = 0; asked.Granted == 0 {
				r.Answers[k].Retry, fits = asked.Retry, false
			}
		}
	}
	if fits {
		return Reply{}, fmt.Errorf("%w: all asks fit, and were refused", ErrReply)
	}
	return r, nil
}

func decodeShort(texts []string, ops []Op) (Reply, error) {
	if _, short := allShort(ops); !short || len(texts) != len(ops)+1 {
		return Reply{}, fmt.Errorf("%w: %d texts for a batch of another form", ErrReply, len(texts))
	}
	head := reader{rest: texts[0], ok: true}
	head.skip("e")
	r := Reply{Epoch: head.number(10), Answers: make([]Answer, len(ops))}
	if !head.ended() || r.Epoch < 1 {
		return Reply{}, fmt.Errorf("%w: %.99q is no epoch", ErrReply, texts[0])
	}
	for i := range ops {
		limit := algo.LimitOf(ops[i].Limit)
		units := ops[i].Owed + ops[i].Asked()
		got, ok := readOutcome(texts[i+1], limit, units)
		if i == 0 {
			r.Now = got.now
		}
		ok = ok && got.now == r.Now && got.granted == units && (ops[i].Owed == 0 || got.left >= limit.Bucket.Unit)
		if !ok || !decideShort(limit, got, &ops[i], &r.Answers[i]) {
			return Reply{}, fmt.Errorf("%w: %.99q is no answer to op %d", ErrReply, texts[i+1], i)
		}
	}
	return r, nil
}

// decideShort computes the answer to an op of the short form. It reports whether Redis can have come to that outcome.
func decideShort(l algo.Limit, o outcome, op *Op, answer *Answer) bool {
	state, ok := before(l, o)
	if !ok {
		return false
	}
	_, *answer, ok = l.Apply(state, algo.Op{Owed: op.Owed, Asks: op.Asks, Div: op.Div}, o.now)
	return ok && answer.Level == o.left
}

// outcome is the answer to the ops of one text.
type outcome struct {
	granted int64    // units
	out     [2]int64 // of a bucket: its ledger
	span    int64    // of a bucket: State.Span
	left    int64    // after the asks: the level of a bucket or queue; the count of a window
	prev    int64    // of a window: the count of the one before
	born    int64    // 0: there was no state
	now     int64    // µs of Redis time
}

// readOutcome reads the answer to asks for asked units. It reports whether the text is one that plain.lua or short.lua
// writes.
func readOutcome(text string, l algo.Limit, asked int64) (outcome, bool) {
	r := reader{rest: text, ok: true}
	window := l.Window.Period > 0
	var o outcome
	if text, refused := strings.CutPrefix(text, "0"); refused {
		r.rest = text
		o.granted, o.left = r.number(16), r.number(16)
		if window {
			o.prev = r.number(16)
		}
		o.born = r.number(16)
		o.now = r.time()
		return o, r.ended() && o.granted < asked
	}
	r.state(l)
	o.granted = asked
	if window {
		win := r.number(16)
		o.left, o.prev, o.born = r.number(16), r.number(16), r.number(16)
		r.number(16) // since
		o.now = r.time()
		return o, r.ended() && o.born > 0 && win == l.Window.Number(o.now)
	}
	o.left = r.number(16)
	if l.Kind == algo.KindQueue {
		o.left = l.Bucket.Cap - o.left
	}
	age := r.number(16)
	o.born = r.number(16)
	o.now = o.born + age
	r.number(16) // since
	o.out, o.span = r.fields(l)
	return o, r.ended() && o.born > 0
}

// decidePlain computes the answers to the ops of a group. It reports whether Redis can have come to that outcome.
func decidePlain(l algo.Limit, o outcome, ops []Op, group []int, answers []Answer) bool {
	state, ok := before(l, o)
	if !ok {
		return false
	}
	for _, k := range group {
		next, ans, changed := l.Apply(state, algo.Op{Asks: ops[k].Asks}, o.now)
		if changed {
			state = next
		}
		answers[k] = ans
		o.granted -= ans.Granted
	}
	return o.granted == 0
}

// before returns the state before the asks, at the time of the asks. It returns false for a state that plain.lua and
// short.lua leave to the script's other way.
func before(l algo.Limit, o outcome) (algo.State, bool) {
	if o.now < 1 || o.now > 1<<53 {
		return algo.State{}, false
	}
	s := algo.State{Kind: l.Kind, Born: o.born}
	full := false
	if w := l.Window; w.Period > 0 {
		s.Period, s.Win, s.Cur, s.Prev = w.Period, w.Number(o.now), o.left-o.granted, o.prev
		if s.Cur < 0 || o.left > w.Rate || o.prev > w.Rate {
			return s, false
		}
		full = s.Cur == 0 && s.Prev == 0
	} else {
		b := l.Bucket
		if o.left < 0 || o.left > b.Cap || o.granted > (b.Cap-o.left)/b.Unit {
			return s, false
		}
		level := o.left + o.granted*b.Unit
		full = level == b.Cap
		s.Unit, s.Refill, s.Level, s.Last, s.Out, s.Span = b.Unit, b.Refill, level, o.now, o.out, o.span
		if b.Queue {
			s.Level -= b.Cap
		}
	}
	if o.born == 0 {
		return algo.State{}, full
	}
	return s, true
}

// reader reads the numbers of a text, one after the other.
type reader struct {
	rest string
	ok   bool // all so far were readable
}

// state reads the begin of the text of a state that was written under a limit, without memory for the expected text.
func (r *reader) state(l algo.Limit) {
	unit, begin := l.Bucket.Unit, "1"+string(l.Kind.Letter())
	if l.Window.Period > 0 {
		unit = l.Window.Period
	}
	r.skip(begin)
	if r.number(16) != unit {
		r.ok = false
	}
	if l.Kind == algo.KindQueue {
		r.skip("-")
	}
}

// fields reads the end of the text of a bucket or queue, and returns the ledger, and its State.Span.
func (r *reader) fields(l algo.Limit) (out [2]int64, span int64) {
	if l.Bucket.Refill > 1 {
		r.skip("r")
		r.ok = r.number(16) == l.Bucket.Refill && r.ok
	}
	for i, letter := range [2]string{"o", "p"} {
		if l.Kind == algo.KindBucket && strings.HasPrefix(r.rest, letter) {
			r.skip(letter)
			out[i] = r.number(16)
			r.ok = r.ok && out[i] > 0
		}
	}
	if rest, ok := strings.CutPrefix(r.rest, "g"); ok && out != [2]int64{} {
		r.rest = rest
		span = r.number(16)
		r.ok = r.ok && span > 0 && span < 4
	}
	return out, span
}

func (r *reader) skip(begin string) {
	rest, ok := strings.CutPrefix(r.rest, begin)
	r.rest, r.ok = rest, r.ok && ok
}

// number reads a number from 0 to 2⁵³.
func (r *reader) number(base int) int64 {
	word, rest, _ := strings.Cut(r.rest, " ")
	n, err := strconv.ParseInt(word, base, 64)
	if err != nil || n < 0 || n > 1<<53 {
		r.ok, n = false, 0
	}
	r.rest = rest
	return n
}

// time reads seconds and µs as µs.
func (r *reader) time() int64 {
	s, µs := r.number(10), r.number(10)
	r.ok = r.ok && s < 1<<53/1_000_000 && µs < 1_000_000
	return s*1_000_000 + µs
}

func (r *reader) ended() bool { return r.ok && r.rest == "" }
