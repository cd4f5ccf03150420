package hybrid

import (
	"log/slog"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// place returns the place of a key. It runs callbacks of the user, so call it without any lock.
func (t *terms) place(key string) (place, error) {
	plan, from, err := t.control.Ask(key)
	if err != nil {
		return place{}, err
	}
	return t.slot(place{plan: plan, from: from}, key), nil
}

// placeUnder is place under the limit of the call, if the call brought one.
func (t *terms) placeUnder(key string, given *account.Plan) (place, error) {
	if given == nil {
		return t.place(key)
	}
	return t.slot(place{plan: given}, key), nil
}

// slot adds the key and its tag.
func (t *terms) slot(at place, key string) place {
	subject := key
	if t.Subject != nil {
		subject = t.Subject(key)
	}
	at.key, at.tag = key, t.names.Tag(subject)
	return at
}

// inRedis returns the key in Redis.
func (t *terms) inRedis(at place) string { return t.names.State(at.tag, t.name, at.key) }

// lock returns the locked entry of the key, and makes it if necessary. The entry gets the limit of the call, or else
// the key's own. lock returns nil when memory is full of keys that owe.
func (t *terms) lock(key string, given *account.Plan) (*entry, hybridlimit.Result, error) {
	e, _, res, err := t.lockBy(key, given, nil)
	return e, res, err
}

// lockAt is lock for a key whose place is known. It runs no callback of the user.
func (t *terms) lockAt(key string, at place) (*entry, hybridlimit.Result, error) {
	e, _, res, err := t.lockBy(key, at.plan, &at)
	return e, res, err
}

// lockBy implements lock and lockAt. known is the place of the key, or nil. lockBy also returns the plan under which the
// call is decided. This is the entry's plan, except for a limit that counts nothing. An entry never adopts such a
// limit: its owed units must be paid under the limit by which they were counted.
func (t *terms) lockBy(key string, given *account.Plan, known *place) (*entry, *account.Plan, hybridlimit.Result, error) {
	res := hybridlimit.Result{Policy: t.name}
	var again renewal
	for {
		var at place // with the answer of LimitFor, if there is a new one
		if known != nil {
			at = *known
		}
		e := t.store.lookup(key)
		if e == nil {
			var err error
			if known == nil {
				at, err = t.placeUnder(key, given)
			}
			if err != nil {
				return nil, nil, res, err
			}
			made := newEntry(t, key)
			made.node.Tag = uint16(at.tag)
			made.plan.Store(at.plan)
			now := t.clock.Now()
			var owing []*entry
			e, owing = t.store.add(made, now)
			for _, o := range owing {
				o.sync(account.SyncNow) // they must pay before they can be evicted
			}
			switch {
			case e == nil:
				return nil, nil, res, nil
			case e != made && known == nil: // the key has come in meanwhile, with another answer
				at = place{}
			}
		}
		want := given
		if want == nil && t.control.RevertsToOwn(e.plan.Load()) {
			var err error
			if at, err = t.place(key); err != nil {
				return nil, nil, res, err
			}
			want = at.plan
		}
		e.lock()
		switch {
		case t.control.Closed.Load(): // checked under the lock: see writeOff
			e.unlock()
			return nil, nil, res, hybridlimit.ErrClosed
		case e.dead():
			e.unlock()
		case want == nil && !at.from.Asked && t.renews(e, key, &again): // the entry is not locked any more
		default:
			return e, t.settleOn(e, want, at, &again), res, nil
		}
	}
}

// settleOn returns the plan under which a call is decided, and gives it to the entry if it counts. want is the plan of
// the call, or nil. Call it under e.mu.
func (t *terms) settleOn(e *entry, want *account.Plan, at place, again *renewal) *account.Plan {
	switch {
	case at.from.Asked:
		want = e.own(at, t.clock.Now())
	case again.answers(e):
		want = e.own(again.at, t.clock.Now())
	case want == nil && t.control.Outdated(e.plan.Load()):
		want = t.control.PlanOf(e.name)
	}
	switch {
	case want == nil:
		return e.standing()
	case !account.Static(want.Limit):
		e.adapt(want, t.clock.Now())
	}
	return want
}

// renews asks LimitFor again if that is due, and reports whether it has unlocked the entry for this. Until the answer has come,
// other calls decide by the old limit and do not ask. So a LimitFor that blocks holds up one call for the key in LimitRefresh.
// After a panic of LimitFor, or an answer that is not valid, the key keeps its limit until the next question. Call it under
// e.mu.
func (t *terms) renews(e *entry, key string, r *renewal) bool {
	if !t.control.Keyed() || r.e != nil {
		return false
	}
	now := t.clock.Now()
	if !e.asks.Due(now) {
		return false
	}
	e.asks = refresh.Next(t.control.Questions.Every, now).With(e.asks.Note())
	r.e, r.next = e, e.asks
	e.unlock()
	var err error
	if r.at, err = t.place(key); err != nil {
		t.count.BadLimits.Add(1)
		t.log.Event(tell.MsgBadLimit, slog.String("limiter", t.name),
			slog.String("key_digest", t.names.Digest(t.name, key)), slog.Any("cause", err))
	}
	return true
}
