package keys

import (
	"github.com/hybridlimit/hybridlimit/hybrid/internal/split"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/parts"
	"github.com/hybridlimit/hybridlimit/lua"
)

// This file has the parts of split keys. A process has one entry for a key. The plan of the entry is that of the part,
// and the part never changes: to use another one, the process forgets the entry.

// partOf returns the place of the part of a key that the process uses: that of its entry, or else its home part.
func (t *Terms) partOf(at Place) (Place, error) {
	e := t.Store.Get(at.Key)
	if e == nil {
		part, err := t.Split.Of(at.Key, at.Plan.Undivided().Limit)
		if err != nil {
			return Place{}, err
		}
		return t.inPart(at, at.Plan.In(part)), nil
	}
	plan := e.Plan.Load()
	if plan.Part.Of < 2 || plan.Of != at.Plan { // otherwise it need not be made again
		var err error
		if plan, err = e.inPart(at.Plan); err != nil {
			return Place{}, err
		}
	}
	return t.inPart(at, plan), nil
}

// inPart returns the place of a key under a plan of a part. at has the tag of the key.
func (t *Terms) inPart(at Place, p *account.Plan) Place {
	if at.Plan = p; p.Part.Of > 1 {
		at.Tag = t.Names.PartTag(at.Tag, int(p.Part.Nth), int(p.Part.Of))
	}
	return at
}

// Parts returns the places of all parts of a key: at itself, if the key is whole.
func (t *Terms) Parts(at Place) []Place {
	p := at.Plan
	if p.Part.Of < 2 {
		return []Place{at}
	}
	all := make([]Place, 0, p.Part.Of)
	for nth := range p.Part.Of {
		all = append(all, t.InPart(at, parts.Part{Nth: nth + 1, Of: p.Part.Of}))
	}
	return all
}

// InPart returns the place of another part of a key that has as many parts.
func (t *Terms) InPart(at Place, part parts.Part) Place {
	at.Tag = t.Names.KeyTag(at.Tag, int(at.Plan.Part.Nth), int(at.Plan.Part.Of))
	return t.inPart(at, at.Plan.In(part))
}

// state returns the key in Redis of a key, or of its part.
func (t *Terms) state(p *account.Plan, tag int, key string) string {
	if p.Part.Of > 1 {
		return t.Names.PartState(tag, t.Name, int(p.Part.Nth), int(p.Part.Of), key)
	}
	return t.Names.State(tag, t.Name, key)
}

// inPart returns a plan for the part of the entry, which never changes.
func (e *Entry) inPart(p *account.Plan) (*account.Plan, error) {
	part := e.Plan.Load().Part
	if p == nil || p.Part == part {
		return p, nil
	}
	if err := split.Check(e.Name, p.Undivided().Limit, int(part.Of), e.Terms.Names.Tags); err != nil {
		return nil, err
	}
	return p.In(part), nil
}

// Mark returns the text that stands for the key, or its part, when units of it are wanted.
func (e *Entry) Mark() string {
	name, part := e.Terms.Name, e.Plan.Load().Part
	if part.Of > 1 {
		name = lua.PartName(name, int(part.Nth), int(part.Of))
	}
	return e.Terms.Names.Digest(name, e.Name)
}

// counted notes that the part of the entry has admitted or refused units.
func (e *Entry) counted(units int64, refused bool, now int64) {
	if t := e.Terms; t.Split != nil {
		p := e.Plan.Load()
		t.Split.Count(e.Name, p.Part, p.Rate(), units, refused, now)
	}
}

// Known returns the place of a key in memory. It runs no callback of the user.
func (t *Terms) Known(key string) (at Place, ok bool) {
	e := t.Store.Peek(key)
	if e == nil {
		return at, false
	}
	return Place{Plan: e.Plan.Load(), Tag: e.Tag(), Key: e.Name}, true
}

// Go makes the process forget the entry of a key, and use another part from its next call on. It reports whether there
// is nothing left to do. Otherwise the entry pays what it owes and returns its units, and Go must be called again.
func (t *Terms) Go(l split.Look) bool {
	e := t.Store.Peek(l.Key)
	if e == nil || e.Plan.Load().Part != l.From {
		return true
	}
	now := t.Clock.Now()
	if t.Store.evict(e, now, func() { t.Split.Moved(l, now) }) {
		return true
	}
	t.Reread(l.Key)
	return false
}
