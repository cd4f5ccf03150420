package hybrid

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/direct"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// joint is the part of one limit in a call under several limits: N units of a key.
type joint struct {
	Limiter *Limiter
	Key     string
	N       int64
}

// allowJoint decides asks. It writes the answer of each limit into each.
func (h *Hub) allowJoint(ctx context.Context, asks []joint, each []hybridlimit.Ask) (res hybridlimit.Result, err error) {
	parts, res, err := h.parts(asks, each)
	defer func() {
		tellEach(each, asks, parts, &res, err)
		if err == nil && !res.Allowed {
			logJoint(asks, parts, &res)
		}
	}()
	if err != nil || res.Source != hybridlimit.SourceUnknown && (!res.Allowed || len(parts) == 0) {
		return res, err
	}
	if res, ok := aboveAll(ctx, parts); ok {
		return res, nil
	}
	shadowed := res.Shadowed
	for range len(parts) + 1 { // each round decides the call, or gets the units of at least one part
		res, done, err := tryAll(parts)
		if done || err != nil {
			if !res.Allowed {
				waste(ctx, parts)
			}
			res.Shadowed = res.Shadowed || res.Allowed && shadowed
			return res, err
		}
		if res, done, err = fetchAll(ctx, parts); done || err != nil {
			waste(ctx, parts)
			return res, err
		}
	}
	waste(ctx, parts)
	return hybridlimit.Result{}, fmt.Errorf("hybrid: AllowAll: no decision on %d limits within the allowed rounds", len(parts))
}

// tellEach gives every ask the answer of its limit. Asks for one key share the answer, but each has its own units. A
// denied call has taken nothing, so its asks get only the denials.
func tellEach(each []hybridlimit.Ask, asks []joint, parts []*part, res *hybridlimit.Result, err error) {
	for i := range each {
		one := &each[i].Result
		for _, p := range parts {
			if p.Limiter == asks[i].Limiter && p.Key == asks[i].Key {
				*one, each[i].Taken = p.res, p.took
			}
		}
		switch {
		case err != nil || one.Allowed != res.Allowed:
			*one, each[i].Taken = hybridlimit.Result{}, hybridlimit.Taken{}
		case one.Allowed:
			one.Granted = asks[i].N
		}
	}
}

// part is one key of a call under several limits.
type part struct {
	joint
	at     keys.Place
	e      *keys.Entry // locked during a try; nil: memory has no room for the key
	plan   *account.Plan
	trial  account.Account // copy of the entry's account with this call applied
	v      account.Verdict
	source hybridlimit.Source
	due    int64 // ns: when the queue serves the paid units
	window int64 // number of the window of the paid units; 0: not known
	paid   bool  // Redis has granted the units for this call
	spare  bool  // memory has no room for the key and Redis is away: see keys.Terms.WithoutMemory

	exactly bool    // Redis makes every decision
	back    algo.Op // gives back the units that Redis granted to a part with exactly
	shadow  bool    // a shadow limit has denied: it is not asked again
	cold    bool    // the process has no view of the key

	waits *account.Waiter // in fetchTogether: the call waits for an answer since began
	began int64           // ns

	res  hybridlimit.Result // the answer; zero until the part has one
	took hybridlimit.Taken
}

// refuse notes a denial that did not come from a try: Redis denied, or memory has no room for the key. A part with such
// a denial is not tried again: its limit is in shadow, or the call ends.
func (p *part) refuse(v account.Verdict) {
	v.Action, v.Sync, v.Left, v.Barred = account.Deny, account.SyncNot, 0, 0
	p.v, p.shadow = v, true
}

// parts checks the asks and sorts them into the order in which locks are taken. res is the answer of the limits that
// count nothing. If one of them denies, res is its denial.
func (h *Hub) parts(asks []joint, each []hybridlimit.Ask) (parts []*part, res hybridlimit.Result, err error) {
	if len(asks) == 0 {
		return nil, res, fmt.Errorf("hybrid: AllowAll: %w: asks is empty, but needs at least one ask", hybridlimit.ErrInvalid)
	}
	if err := check(asks); err != nil {
		return nil, res, err
	}
	for i, a := range asks {
		one, ok := a.Limiter.terms.DecidedAbove(a.Key, a.N)
		var at keys.Place
		if !ok {
			if at, err = a.Limiter.terms.Place(a.Key); err != nil {
				return nil, res, err
			}
			if one, ok = keys.Static(at.Plan, hybridlimit.Result{Policy: a.Limiter.cfg.Name}, a.N); ok {
				one = a.Limiter.terms.Tally(one, a.N)
			}
		}
		if ok {
			each[i].Result = one
			shadowed := res.Shadowed || one.Shadowed
			if res.Source == hybridlimit.SourceUnknown || !one.Allowed {
				res = one
			}
			res.Shadowed = res.Allowed && shadowed
			continue
		}
		if same := slices.IndexFunc(parts, func(p *part) bool { return p.Limiter == a.Limiter && p.Key == a.Key }); same >= 0 {
			if parts[same].N += a.N; parts[same].N < 0 {
				return nil, res, fmt.Errorf("hybrid: AllowAll: asks[%d]: %w: with these %d units, the sum for the key exceeds the range of int64", i, hybridlimit.ErrCost, a.N)
			}
			continue
		}
		parts = append(parts, &part{joint: a, at: at, exactly: a.Limiter.control.Exactly(at.Plan)})
	}
	// Not by the key in Redis: Config.TagBy may return another text later, but the order of locks must not change.
	slices.SortFunc(parts, func(p, q *part) int { return lockOrder(&p.Limiter.terms, p.Key, &q.Limiter.terms, q.Key) })
	return parts, res, nil
}

// lockOrder compares two keys of a hub by the order in which their entries are locked. A key has an entry for each
// class.
func lockOrder(t *keys.Terms, key string, other *keys.Terms, otherKey string) int {
	return cmp.Or(cmp.Compare(t.Name, other.Name), cmp.Compare(key, otherKey), cmp.Compare(t.Control.Class.Place, other.Control.Class.Place))
}

// tryAll decides all parts under the locks of their entries. It reports false if units have to be fetched from Redis
// first.
func tryAll(parts []*part) (res hybridlimit.Result, done bool, err error) {
	locked, kept := parts[:0:0], false
	defer func() {
		for _, p := range parts {
			p.endSpare(kept)
		}
		for _, p := range locked {
			p.e.Unlock()
			p.e.Sync(p.v.Sync)
		}
	}()
	for _, p := range parts {
		p.e, p.plan, p.spare = nil, p.at.Plan, false
		if p.shadow {
			continue
		}
		if p.exactly {
			p.tryExactly()
			continue
		}
		e, _, err := p.Limiter.terms.LockAt(p.Key, p.at)
		if err != nil {
			return res, true, err
		}
		if p.spare = e == nil && p.Limiter.terms.Alone(p.at.Tag); p.spare {
			p.v = p.Limiter.terms.FromOverflow(p.Key, p.at, p.plan, p.N)
			continue
		}
		if e == nil { // memory is full of keys that owe units
			p.refuse(account.Verdict{Source: hybridlimit.SourceTimeout, Retry: int64(p.Limiter.cfg.SyncInterval)})
			if p.Limiter.control.Shadow.Load() {
				continue
			}
			return p.denied(p.v), true, nil
		}
		p.e, p.plan = e, e.Plan.Load()
		locked = append(locked, p)
	}
	var worst *part
	admitted := true
	for _, p := range parts {
		if p.e != nil {
			p.try()
		}
		passes := p.v.Action == account.Admit || p.v.Action == account.Deny && p.Limiter.control.Shadow.Load()
		admitted = admitted && passes
		if p.v.Action == account.Deny && !passes && (worst == nil || p.v.Retry > worst.v.Retry) {
			worst = p
		}
	}
	for _, p := range locked {
		p.end(admitted)
	}
	kept = admitted
	switch {
	case worst != nil:
		return worst.denied(worst.v), true, nil
	case !admitted:
		return res, false, nil
	}
	shadowed, delay := false, time.Duration(0)
	for i, p := range parts {
		one := p.Limiter.terms.Tally(p.Limiter.terms.Fill(hybridlimit.Result{Limit: p.plan.Shown, Policy: p.Limiter.cfg.Name}, p.plan, p.v, p.N), p.N)
		p.res, p.took = one, p.taken()
		shadowed, delay = shadowed || one.Shadowed, max(delay, one.Delay)
		if i == 0 || one.Remaining < res.Remaining {
			res = one
		}
	}
	res.Shadowed, res.Delay = shadowed, delay
	return res, true, nil
}

// endSpare keeps the units from the overflow, or puts them back.
func (p *part) endSpare(admitted bool) {
	if !p.spare {
		return
	}
	l, took := p.Limiter, p.v.Action == account.Admit
	if !took || admitted {
		l.terms.CountOverflow(p.N, took)
	} else if f := l.terms.Share(p.plan, l.party.Size()); f.Counts() {
		l.terms.Shares.Put(p.Key, f.Size, p.N, l.hub.clock.Now())
	}
}

// tryExactly is try for a part that Redis decides.
func (p *part) tryExactly() {
	switch {
	case p.paid:
		p.v.Action, p.v.Source = account.Admit, p.source
		p.v.Delay = max(0, p.due-p.Limiter.hub.clock.Now())
	case p.N > p.plan.Most:
		p.v = account.Verdict{Action: account.Deny, Source: hybridlimit.SourceStatic, Retry: int64(hybridlimit.Never)}
	default:
		p.v = account.Verdict{Action: account.Ask}
	}
}

// try decides the part on a copy of its entry's account.
func (p *part) try() {
	e, l := p.e, p.Limiter
	now := l.hub.clock.Now()
	e.Begin(now)
	c := e.Conditions(p.plan, now)
	if c.Broken {
		e.Account.StartFallback(&c, now)
	}
	p.trial, p.cold = e.Account, e.Account.ViewAge(now) < 0
	switch {
	case p.paid:
		p.v = account.Verdict{Action: account.Admit, Source: p.source, Delay: max(0, p.due-now)}
	case p.N > p.plan.Most:
		p.v = account.Verdict{Action: account.Deny, Source: hybridlimit.SourceStatic, Retry: int64(hybridlimit.Never)}
	default:
		p.v = p.trial.Call(&c, p.N, now)
	}
}

// end keeps the result of the try if the call was admitted. Otherwise it keeps only the demand that the try counted.
func (p *part) end(admitted bool) {
	e, l := p.e, p.Limiter
	epoch, now := l.hub.clock.Stamp()
	c := e.Conditions(p.plan, now)
	if admitted {
		e.Account = p.trial
	} else {
		e.Account.KeepDemand(&p.trial)
		if p.v.Action == account.Admit {
			p.v.Sync = account.SyncNot
		}
		if p.v.Action == account.Admit && p.v.Reason == account.LocalUnits {
			c.Fallback.Share.Put(c.Fallback.Size, p.N, now)
		}
	}
	e.Begin(now) // a lease may have ended since the try
	e.End(&c, epoch, now)
	e.Describe(&p.v, &c, now)
}

// fetchExactly is fetch for a part that Redis decides.
func (p *part) fetchExactly(ctx context.Context) (account.Verdict, error) {
	l, r := p.Limiter, p.at.Plan
	if was, now, ok := l.direct.Refused(p.Key, p.at, p.N); ok {
		return account.Verdict{Action: account.Deny, Source: hybridlimit.SourceDenyCache, Retry: was.Until - now, Left: was.Left, Ends: was.Reset}, nil
	}
	sent := l.hub.clock.Now()
	ans, at, ok := l.direct.Ask(ctx, p.at, algo.Op{Asks: []int64{p.N}})
	if !ok {
		if err := direct.Ended(ctx); err != nil {
			return account.Verdict{}, err
		}
		return l.direct.WithoutRedis(p.Key, p.at, p.N)
	}
	v := direct.Said(r, ans, p.N)
	now := l.hub.clock.Now()
	switch {
	case r.Window.Period > 0:
		v.Ends = now + ans.Ends*1000
	case r.Kind == algo.KindLog:
		v.Ends = now + r.Reset(ans)*1000
	}
	if v.Action == account.Admit {
		p.v, p.back = v, r.Back(ans, at)
	} else {
		l.direct.Refuse(p.Key, p.at, p.N, ans, sent, now)
	}
	return v, nil
}

// denied counts the denial of this part and returns its answer.
func (p *part) denied(v account.Verdict) hybridlimit.Result {
	v.Action = account.Deny
	res := p.Limiter.terms.Fill(hybridlimit.Result{Limit: p.plan.Shown, Policy: p.Limiter.cfg.Name}, p.plan, v, p.N)
	p.res = p.Limiter.terms.Tally(res, p.N)
	return p.res
}

// waste handles the units that Redis granted to a call that was denied in the end. It gives them back where possible,
// and counts the rest as lost. Call it without locks.
func waste(ctx context.Context, parts []*part) {
	for _, p := range parts {
		if !p.paid {
			continue
		}
		p.paid = false
		l := p.Limiter
		if p.back.Refund > 0 {
			// Unlike Refund, this counts no returned units: none were admitted.
			if _, _, ok := l.direct.Within(context.WithoutCancel(ctx), p.at, p.back, l.direct.Patience()); ok {
				l.terms.Count.Refunded.Add(p.N)
				continue
			}
		}
		l.terms.Count.Lost.Add(p.N)
	}
}

// aboveAll returns the denial of the first part that Redis decides and that costs more than its burst. It reports false
// if there is no such part. Parts of a shadow limit do not count.
func aboveAll(ctx context.Context, parts []*part) (res hybridlimit.Result, ok bool) {
	for _, p := range parts {
		if !p.exactly || p.N <= p.at.Plan.Most || p.Limiter.control.Shadow.Load() {
			continue
		}
		p.plan = p.at.Plan
		one, _ := p.Limiter.direct.Left(ctx, p.at)
		p.res = p.Limiter.terms.Tally(keys.Never(one), p.N)
		return p.res, true
	}
	return res, false
}
