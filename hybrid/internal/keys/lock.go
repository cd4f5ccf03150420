package keys

import (
	"log/slog"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// Place is where a key lives.
type Place struct {
	Plan *account.Plan // of this key's limit
	Tag  int
	Key  string // the caller's
	from control.Question
}

// Place returns the place of a key. It runs callbacks of the user, so call it without any lock.
func (t *Terms) Place(key string) (Place, error) {
	plan, from, err := t.Control.Ask(key)
	if err != nil {
		return Place{}, err
	}
	return t.slot(Place{Plan: plan, from: from}, key)
}

// PlaceUnder is place under the limit of the call, if the call brought one.
func (t *Terms) PlaceUnder(key string, given *account.Plan) (Place, error) {
	if given == nil {
		return t.Place(key)
	}
	return t.slot(Place{Plan: given}, key)
}

// slot adds the key and its tag. Of a split key it is the place of the part that the process uses.
func (t *Terms) slot(at Place, key string) (Place, error) {
	by := key
	if t.TagBy != nil {
		by = t.TagBy(key)
	}
	at.Key, at.Tag = key, t.Names.Tag(by)
	if t.Split == nil {
		return at, nil
	}
	return t.partOf(at)
}

// InRedis returns the key in Redis.
func (t *Terms) InRedis(at Place) string { return t.state(at.Plan, at.Tag, at.Key) }

// Lock returns the locked entry of the key, and makes it if necessary. The entry gets the limit of the call, or else
// the key's own. Lock returns nil when memory is full of keys that owe.
func (t *Terms) Lock(key string, given *account.Plan) (*Entry, hybridlimit.Result, error) {
	e, _, res, err := t.LockBy(key, given, nil)
	return e, res, err
}

// LockAt is lock for a key whose place is known. It runs no callback of the user.
func (t *Terms) LockAt(key string, at Place) (*Entry, hybridlimit.Result, error) {
	e, _, res, err := t.LockBy(key, at.Plan, &at)
	return e, res, err
}

// LockBy implements Lock and LockAt. known is the place of the key, or nil. LockBy also returns the plan under which
// the call is decided. This is the entry's plan, except for a limit that counts nothing. An entry never adopts such a
// limit: its owed units must be paid under the limit by which they were counted.
func (t *Terms) LockBy(key string, given *account.Plan, known *Place) (*Entry, *account.Plan, hybridlimit.Result, error) {
	res := hybridlimit.Result{Policy: t.Name}
	var again renewal
	for {
		var at Place // with the answer of LimitFor, if there is a new one
		if known != nil {
			at = *known
		}
		e := t.Store.Lookup(key)
		if e == nil {
			var err error
			if known == nil {
				at, err = t.PlaceUnder(key, given)
			}
			if err != nil {
				return nil, nil, res, err
			}
			if known != nil && at.Plan.Part.Of > 1 { // the process may use another part since
				at = t.InPart(at, t.Split.Now(key, at.Plan.Part))
			}
			made := NewEntry(t, key)
			made.Link.Tag = uint16(at.Tag)
			made.Plan.Store(at.Plan)
			now := t.Clock.Now()
			var owing []*Entry
			e, owing = t.Store.Add(made, now)
			for _, o := range owing {
				o.Sync(account.SyncNow) // they must pay before they can be evicted
			}
			switch {
			case e == nil:
				return nil, nil, res, nil
			case e != made && known == nil: // the key has come in meanwhile, with another answer
				at = Place{}
			}
		}
		want := given
		if want == nil && t.Control.RevertsToOwn(e.Plan.Load()) {
			var err error
			if at, err = t.Place(key); err != nil {
				return nil, nil, res, err
			}
			want = at.Plan
		}
		e.Lock()
		switch {
		case t.Control.Closed.Load(): // checked under the lock: see Entry.WriteOff
			e.Unlock()
			return nil, nil, res, hybridlimit.ErrClosed
		case e.Dead():
			e.Unlock()
		case want == nil && !at.from.Asked && t.renews(e, key, &again): // the entry is not locked any more
		default:
			plan, err := t.settleOn(e, want, at, &again)
			if err != nil {
				e.Unlock()
				return nil, nil, res, err
			}
			return e, plan, res, nil
		}
	}
}

// settleOn returns the plan under which a call is decided, and gives it to the entry if it counts. want is the plan of
// the call, or nil. It fails if the limit cannot be split into the parts that the key has. Call it under e.mu.
func (t *Terms) settleOn(e *Entry, want *account.Plan, at Place, again *renewal) (_ *account.Plan, err error) {
	asked := at.from.Asked
	switch {
	case asked:
	case again.answers(e):
		at, asked = again.at, true
	case want == nil && t.Control.Outdated(e.Plan.Load()):
		want = t.Control.PlanOf(e.Name)
	}
	if asked {
		if at.Plan, err = e.inPart(at.Plan); err != nil {
			return nil, err
		}
		want = e.own(at, t.Clock.Now())
	} else if want, err = e.inPart(want); err != nil {
		return nil, err
	}
	switch {
	case want == nil:
		return e.Standing(), nil
	case !account.Static(want.Limit):
		e.adapt(want, t.Clock.Now())
	}
	return want, nil
}

// renews asks LimitFor again if that is due, and reports whether it has unlocked the entry for this. Until the answer
// has come, other calls decide by the old limit and do not ask. So a LimitFor that blocks holds up one call for the key
// in LimitRefresh. After a panic of LimitFor, or an answer that is not valid, the key keeps its limit until the next
// question. Call it under e.mu.
func (t *Terms) renews(e *Entry, key string, r *renewal) bool {
	if !t.Control.Keyed() || r.e != nil {
		return false
	}
	now := t.Clock.Now()
	if !e.Asks.Due(now) {
		return false
	}
	e.Asks = refresh.Next(t.Control.Questions.Every, now).With(e.Asks.Note())
	r.e, r.next = e, e.Asks
	e.Unlock()
	var err error
	if r.at, err = t.Place(key); err != nil {
		t.Count.BadLimits.Add(1)
		t.Log.Event(tell.MsgBadLimit, slog.String("limiter", t.Name),
			slog.String("key_digest", t.Names.Digest(t.Name, key)), slog.Any("cause", err))
	}
	return true
}
