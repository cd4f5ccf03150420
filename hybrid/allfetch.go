package hybrid

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// This file has the questions to Redis of a call under several limits. Cold keys, of which the process has no view, are
// asked for together: nothing says that one of them denies. The others are asked for one after the other, in one order
// for all calls. Two calls that want the last units of two limits are then not both denied, and a denial ends the
// questions. Units that Redis granted to a call that another limit denies are lost, so each of these questions waits
// for the answer before it. After one answer a key is not cold any more.

// fetchAll asks Redis for the units that the parts lack. If a part denies, it reports true with that part's answer. The
// parts that Redis always decides come last, so that fewer of their units have to be given back.
func fetchAll(ctx context.Context, parts []*part) (res hybridlimit.Result, done bool, err error) {
	var cold []*part
	for _, p := range parts {
		if p.lacks() && p.e != nil && p.cold {
			cold = append(cold, p)
		}
	}
	if len(cold) > 1 {
		return fetchTogether(ctx, cold)
	}
	for _, exactly := range []bool{false, true} {
		asked := false
		for _, p := range parts {
			if !p.lacks() || p.exactly != exactly {
				continue
			}
			asked = true
			v, err := p.fetch(ctx)
			if err != nil {
				return res, true, err
			}
			if !p.fetched(v) {
				return p.denied(v), true, nil
			}
		}
		if asked { // the units of the other parts may have been spent meanwhile: try again
			return res, false, nil
		}
	}
	return res, false, nil
}

// lacks reports whether Redis must be asked for the part's units.
func (p *part) lacks() bool { return p.v.Action == account.Ask && !p.paid }

// fetched notes the verdict of Redis, or of the fallback. It reports false if the part denies the call.
func (p *part) fetched(v account.Verdict) bool {
	switch {
	case v.Action == account.Admit:
		p.paid, p.source, p.window = true, v.Source, v.Window
		p.due = p.Limiter.hub.clock.Now() + v.Delay
	case p.Limiter.control.Shadow.Load():
		p.refuse(v)
	default:
		return false
	}
	return true
}

// fetchTogether is fetchAll for parts that are asked for at the same time. It waits for all answers. If several parts
// deny, the answer is that of the longest RetryAfter.
func fetchTogether(ctx context.Context, parts []*part) (res hybridlimit.Result, done bool, err error) {
	if err := ctx.Err(); err != nil { // units granted to a call that has left are lost
		return res, true, err
	}
	for _, p := range parts {
		if err = p.ask(); err != nil {
			break
		}
	}
	now := map[int][]ratesync.Item{} // by server
	for _, p := range parts {
		switch {
		case p.v.Sync != account.SyncNow:
			p.e.Sync(p.v.Sync)
		case !p.Limiter.control.Mute():
			server := p.Limiter.hub.server(p.e.Tag())
			now[server] = append(now[server], p.e)
		}
	}
	for server, items := range now {
		parts[0].Limiter.hub.engine.EnqueueAll(server, items)
	}
	var worst *part
	for _, p := range parts {
		if p.waits != nil {
			v, failed := p.Limiter.terms.Wait(ctx, p.e, p.waits, p.began, p.Limiter.cfg.MaxWait)
			if p.waits = nil; failed != nil {
				err = failed
				continue
			}
			p.v = v
		}
		if p.lacks() || p.fetched(p.v) { // it was not asked for after an error
			continue
		}
		if worst == nil || p.v.Retry > worst.v.Retry {
			worst = p
		}
	}
	if err == nil && worst != nil {
		return worst.denied(worst.v), true, nil
	}
	return res, err != nil, err
}

// ask lets a call wait for the part's units if memory cannot decide by now. The caller queues the sync of the verdict.
func (p *part) ask() error {
	ev, v, err := p.again()
	switch {
	case err != nil:
		return err
	case ev.Entry == nil:
		p.v = v
		return nil
	}
	p.e = ev.Entry
	if v.Action == account.Ask {
		p.waits, p.began = account.NewWaiter(p.N, p.e.Plan.Load()), ev.Now
		p.e.Waiters.Add(p.waits)
	}
	queued := v.Sync
	v.Sync = account.SyncNot
	p.v = ev.End(v)
	p.v.Sync = queued
	return nil
}

// again begins an event of the part's key, and decides the part in it. If memory has no room for the key, the event has
// no entry.
func (p *part) again() (ev keys.Event, v account.Verdict, err error) {
	e, _, err := p.Limiter.terms.LockAt(p.Key, p.at)
	switch {
	case err != nil:
		return ev, v, err
	case e == nil:
		return ev, account.Verdict{Source: hybridlimit.SourceTimeout, Action: account.Deny, Retry: int64(p.Limiter.cfg.SyncInterval)}, nil
	}
	ev = e.Event()
	return ev, e.Account.Again(&ev.Conditions, p.N, ev.Now), nil // not Call: the try has counted the demand
}

// fetch waits until Redis has answered for the part's units in this call.
func (p *part) fetch(ctx context.Context) (account.Verdict, error) {
	if p.exactly {
		return p.fetchExactly(ctx)
	}
	ev, v, err := p.again()
	switch {
	case err != nil || ev.Entry == nil:
		return v, err
	case v.Action != account.Ask:
		return ev.End(v), nil
	}
	return p.Limiter.terms.Await(ctx, &ev, v, account.NewWaiter(p.N, ev.Entry.Plan.Load()))
}
