package notice

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/periods"
)

// rounding keeps a product such as 0.07·100, which is above 7, from asking for another unit.
const rounding = 1e-9

// terms are what the limit of a key says about crossings. They never change.
type terms struct {
	limit hybridlimit.Limit // of the whole
	needs []int64           // the units that cross each threshold; none: the limit has no windows
	asked time.Time
	// periods finds the windows of a calendar; nil: the limit has none of a calendar.
	periods *periods.Periods
	seen    []seenLimit // a Result with another Limit comes from a change of the limit
}

// seenLimit is the Limit of the Results of a view.
type seenLimit struct {
	of    *Limiter
	limit int64
}

// termsFor is the time after which the limit of a key is asked again: its period may have changed.
const termsFor = time.Second

// termsOf returns the terms for a Result of a view with this Limit. It calls LimitFor at most once a second for a key
// above the lowest threshold, and after a change of the limit.
func (l *Limiter) termsOf(e *entry, limit int64, now time.Time) *terms {
	w := l.watch
	own, had := seenLimit{l, limit}, e.term.Load()
	if had != nil && now.Sub(had.asked) < termsFor && slices.Contains(had.seen, own) {
		return had
	}
	t := &terms{limit: w.whole.Policy(e.key).Limit, asked: now, seen: []seenLimit{own}}
	switch {
	case had != nil && had.limit == t.limit:
		t.needs, t.periods = had.needs, had.periods
		for _, s := range had.seen {
			if s.of != l && len(t.seen) < mostClasses {
				t.seen = append(t.seen, s)
			}
		}
	case windowed(t.limit):
		for _, at := range w.at {
			t.needs = append(t.needs, max(1, int64(math.Ceil(float64(t.limit.Rate)*at-rounding))))
		}
		if t.limit.Algorithm == hybridlimit.AlgCalendarWindow && !fromUse(t.limit) {
			t.periods = periods.Of(t.limit.Calendar)
		}
	}
	e.term.Store(t)
	return t
}

// reached returns the mask of the thresholds that so many used units reach.
func (t *terms) reached(used int64) (mask uint32) {
	for i, need := range t.needs {
		if used >= need {
			mask |= 1 << i
		}
	}
	return mask
}

// masks are the thresholds of a window that were told, and those that found no room (see Config.On).
type masks struct {
	window

	told, missed uint32
}

// twoMasks are those of the newest window and of another one: of two calls at a border, the one in the earlier window may
// come later. They never change.
type twoMasks struct{ now, before masks }

// of returns the masks of a window.
func (m *twoMasks) of(w window) masks {
	switch {
	case m != nil && w == m.now.window:
		return m.now
	case m != nil && w == m.before.window:
		return m.before
	}
	return masks{window: w}
}

// snapped returns a window that m has instead of one that began with a use at about the same time: the second at which it
// began is known to half a second, and the next one begins a period later.
func (m *twoMasks) snapped(w window) window {
	if m == nil {
		return w
	}
	for _, have := range [...]window{m.now.window, m.before.window} {
		if apart := w.begin - have.begin; have.end-have.begin == w.end-w.begin && max(apart, -apart) < (w.end-w.begin)/2 {
			return have
		}
	}
	return w
}

// with returns m with the masks of a window, and those that it replaces.
func (m *twoMasks) with(one masks) (made *twoMasks, replaced masks) {
	switch {
	case m == nil:
		return &twoMasks{now: one}, masks{}
	case one.window == m.now.window:
		return &twoMasks{now: one, before: m.before}, masks{}
	case one.window == m.before.window:
		return &twoMasks{now: m.now, before: one}, masks{}
	case one.end <= m.now.begin:
		return &twoMasks{now: m.now, before: one}, m.before
	}
	return &twoMasks{now: one, before: m.now}, m.before
}

// compare tells the thresholds that a Result reaches, if they were not told in its window before.
func (l *Limiter) compare(e *entry, res *hybridlimit.Result) {
	w, now := l.watch, time.Now()
	t := l.termsOf(e, res.Limit, now)
	if len(t.needs) == 0 {
		w.counts.unwatched.Add(1)
		w.lines.unwatched(t.limit)
		return
	}
	used := res.Limit - res.Remaining
	reached := t.reached(used)
	hides := l.part && res.Remaining <= 0 && reached != w.all
	if reached == 0 && !hides {
		return
	}
	in, all := t.windowOf(now, res), e.told.Load()
	if fromUse(t.limit) {
		in = all.snapped(in)
	}
	have := all.of(in)
	if hides && have.told != w.all && !e.dim.Load() {
		e.dim.Store(true)
	}
	if reached&^have.told != 0 {
		l.cross(e, t, in, used, reached)
	}
}

// cross sends the crossings of the thresholds that were not told yet.
func (l *Limiter) cross(e *entry, t *terms, in window, used int64, reached uint32) {
	w := l.watch
	e.mu.Lock()
	have := e.told.Load()
	if fromUse(t.limit) {
		in = have.snapped(in)
	}
	one := have.of(in)
	missing := reached &^ one.told
	if missing == 0 {
		e.mu.Unlock()
		return
	}
	sent, ended := w.send(e.key, t, in, used, missing)
	if one.told |= sent; ended {
		one.told |= missing
	} else {
		one.missed = (one.missed | missing) &^ sent
	}
	made, replaced := have.with(one)
	e.told.Store(made)
	e.mu.Unlock()
	w.lose(replaced.missed)
	if ended {
		w.lose(missing &^ sent)
	}
	w.rouse()
}

// missed returns the number of crossings that have found no room, and forgets them.
func (e *entry) missed() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	have := e.told.Load()
	if have == nil || have.now.missed|have.before.missed == 0 {
		return 0
	}
	n := bits.OnesCount32(have.now.missed) + bits.OnesCount32(have.before.missed)
	rest := *have
	rest.now.missed, rest.before.missed = 0, 0
	e.told.Store(&rest)
	return uint64(n)
}

// giveUp counts the crossings of an entry at which the goroutine does not look again.
func (w *watch) giveUp(e *entry) {
	if n := e.missed(); n > 0 {
		w.counts.lost.Add(n)
		w.lines.lost()
	}
}

// lose counts crossings that were seen and are not told.
func (w *watch) lose(mask uint32) {
	if mask != 0 {
		w.counts.lost.Add(uint64(bits.OnesCount32(mask)))
		w.lines.lost()
	}
}

// mostWaiting is the number of crossings that may wait for On.
const mostWaiting = 1024

// send queues the crossings of a mask, the lowest threshold first. It returns the mask of those that found room, and
// whether the goroutine has ended.
func (w *watch) send(key string, t *terms, in window, used int64, mask uint32) (sent uint32, ended bool) {
	c := Crossing{
		Limiter: w.name, Key: key, Used: used, Limit: t.limit.Rate,
		Begin: time.Unix(0, in.begin).UTC(), End: time.Unix(0, in.end).UTC(),
	}
	w.sending.Lock()
	defer w.sending.Unlock()
	for i, at := range w.at {
		if mask>>i&1 == 0 || w.ended {
			continue
		}
		c.At, c.ID = at, id(c.Limiter, key, in, at)
		select {
		case w.told <- c:
			sent |= 1 << i
		default:
		}
	}
	return sent, w.ended
}

// id returns Crossing.ID. The end is in it, so that a window of another period is another one.
func id(limiter, key string, in window, at float64) string {
	room := [256]byte{}
	b := binary.AppendUvarint(room[:0], uint64(len(limiter)))
	b = append(b, limiter...)
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	b = binary.BigEndian.AppendUint64(b, uint64(in.begin))
	b = binary.BigEndian.AppendUint64(b, uint64(in.end))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(at))
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
