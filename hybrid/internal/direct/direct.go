// Package direct asks Redis about one call in a message of its own, which is sent once and has no envelope. Calls that
// Redis alone decides use it (mode exact, logs, keys for which memory has no room), and so do bookings, Peek and Reset.
package direct

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// Env is what direct calls need of their hub.
type Env struct {
	Caller  ratesync.Caller // traced and timed
	Runner  *runner.Runner
	Engine  *ratesync.Engine
	Breaker func(tag int) *circuit.Breaker
	Timeout time.Duration // HubConfig.SyncTimeout
	Trip    *atomic.Int64 // ns: the round trip of the last heartbeat
	Sent    atomic.Uint64 // messages
	Failed  atomic.Uint64 // of Sent, without an answer
}

// Asker makes the direct calls of one class of a limiter.
type Asker struct {
	env   *Env
	terms *keys.Terms
}

// New returns an Asker for keys with these terms.
func New(env *Env, terms *keys.Terms) Asker { return Asker{env, terms} }

// Said returns the verdict of an answer: admitted if Redis granted least units or more.
func Said(p *account.Plan, ans wire.Answer, least int64) account.Verdict {
	v := account.Verdict{
		Action: account.Deny, Source: hybridlimit.SourceRedis, Reason: account.Refused, Retry: ans.Retry * 1000, Left: p.Units(ans.Level),
	}
	if ans.Granted >= least {
		v.Action, v.Reason, v.Delay = account.Admit, account.Granted, ans.Delay*1000
	}
	return v
}

// Ask is Within for a decision, which waits for MaxWait.
func (a *Asker) Ask(ctx context.Context, at keys.Place, op algo.Op) (ans wire.Answer, now int64, ok bool) {
	return a.Within(ctx, at, op, a.terms.MaxWait)
}

// Patience returns the time for which Reserve and Wait wait for Redis. They may take longer than a decision: a Redis in
// another zone that needs longer than MaxWait is no outage for them, and a new connection takes several round trips.
func (a *Asker) Patience() time.Duration {
	if a.terms.MaxWait < 0 {
		return a.terms.MaxWait
	}
	return max(a.terms.MaxWait, 4*a.env.Timeout, a.env.Engine.Timeout())
}

// Within sends a message with one op, once and without an envelope, and waits for the answer. It returns the answer,
// and the time at which Redis gave it, in µs of Redis time. Without an answer ok is false, and Granted is the number of
// units that Redis may have granted: none if nothing was sent.
func (a *Asker) Within(ctx context.Context, at keys.Place, op algo.Op, wait time.Duration) (ans wire.Answer, now int64, ok bool) {
	if a.terms.Control.Mute() || Ended(ctx) != nil {
		return ans, 0, false
	}
	a.terms.Pace.Event(at.Plan.Full)
	call, ok := a.env.Breaker(at.Tag).Begin()
	if !ok || wait < 0 {
		if ok {
			call.End(0, context.Canceled)
		}
		return ans, 0, false
	}
	if at.Plan.Kind == algo.KindLog {
		op.ID = hybridlimit.RequestID(ctx)
	}
	op.Since, op.Floor = at.Plan.InForce(a.terms.Clock.Now()), at.Plan.Floor
	a.terms.Clock.Begin()
	defer a.terms.Clock.End()
	sent := time.Now()
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var span algo.Span
	if a.terms.Control.Exactly(at.Plan) && op.View == (algo.View{}) {
		op.View, span = a.viewOf(at)
	}
	reply, err := a.env.Caller.Batch(bounded, wire.Envelope{}, []wire.Op{{
		Key: a.terms.InRedis(at), Limit: at.Plan.Limit, Span: span, Op: op,
	}})
	a.env.Sent.Add(1)
	a.terms.Count.Ops.Add(1)
	took := time.Since(sent)
	blamed := a.blame(ctx, err)
	if bounded.Err() != nil && !a.env.Long(wait) {
		blamed = context.Canceled
	}
	call.End(a.terms.Engine.Without(took), blamed)
	if err != nil {
		if !errors.Is(blamed, context.Canceled) { // a failure of Redis
			a.env.Failed.Add(1)
		}
		ans.Granted = op.Asked()
		a.terms.Count.Uncertain.Add(ans.Granted)
		return ans, 0, false
	}
	ans = reply.Answers[0]
	a.terms.Count.Debited.Add(ans.Granted)
	a.terms.Clocks.Heard(at.Tag, reply.Now, a.terms.Clock.At(sent), a.terms.Clock.At(sent.Add(took)))
	a.terms.Found(at.Plan.Bucket, ans.Level)
	a.terms.Sighted(at.Tag, at.Key, at.Plan, ans, reply.Now)
	ans = at.Plan.Seen(ans)
	if a.terms.Control.Exactly(at.Plan) {
		a.seen(at, ans, reply.Now, a.terms.Clock.At(sent))
	}
	return ans, reply.Now, true
}

// viewOf returns the view of a key that Redis alone decides. An op carries it, so that a Redis that has lost the key
// learns of it. window is that of the view, for a window from the first use.
func (a *Asker) viewOf(at keys.Place) (v algo.View, window algo.Span) {
	e := a.terms.Store.Get(at.Key)
	if e == nil || at.Plan.Kind == algo.KindLog {
		return v, window
	}
	e.Lock()
	defer e.Unlock()
	if p := e.Plan.Load(); !e.Dead() && p.Limit == at.Plan.Limit && p.Part == at.Plan.Part {
		c := account.Conditions{Bucket: p.Bucket, Window: p.Window, Floor: p.Floor}
		v = e.Account.Told(&c)
		if p.Window.FromUse { // the period of a calendar follows from the time at which the op is sent
			window = e.Account.Span(&c, a.terms.Clock.Now())
		}
	}
	return v, window
}

// seen notes the answer of a direct call for a key that Redis alone decides, so that a fallback begins with what was
// left. A key for which memory has no room begins with a full share. An answer about another part of a split key says
// nothing about that of the entry.
func (a *Asker) seen(at keys.Place, ans wire.Answer, redisNow, sent int64) {
	e, _, err := a.terms.LockAt(at.Key, at)
	if e == nil || err != nil {
		return
	}
	defer e.Unlock()
	if e.Plan.Load().Part != at.Plan.Part {
		return
	}
	now := a.terms.Clock.Now()
	c := e.Conditions(e.Plan.Load(), now)
	e.Account.DirectSeen(&c, account.Answer{Answer: ans, RedisNow: redisNow, Sent: sent}, now)
}

// Ended returns the error of a context that has ended, also if its timer is late: a client of Redis notices the
// deadline itself.
func Ended(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Long reports whether a call that has waited so long without an answer is evidence against Redis. A MaxWait near the
// round trip says nothing: it is short, or Redis is far, or this process gets no core. Nor does one below the time-out in
// a crowd.
func (e *Env) Long(wait time.Duration) bool {
	wait -= e.Engine.Late()
	if e.Engine.Crowded() && wait < e.Engine.Timeout() {
		return false
	}
	return wait >= max(5*time.Millisecond, 4*e.Engine.RTT(), 4*time.Duration(e.Trip.Load()))
}

// blame returns the error for the breaker. If the caller's ctx has ended, or the limiter is closed, a failure is no
// evidence about Redis, and blame returns context.Canceled.
func (a *Asker) blame(ctx context.Context, err error) error {
	if err != nil && (Ended(ctx) != nil || a.terms.Control.Closed.Load()) {
		return context.Canceled
	}
	return err
}

// WithoutRedis decides locally for a call that Redis did not answer.
func (a *Asker) WithoutRedis(key string, at keys.Place, n int64) (account.Verdict, error) {
	e, _, err := a.terms.LockAt(key, at)
	switch {
	case err != nil:
		return account.Verdict{}, err
	case e == nil && a.terms.Control.Closed.Load(): // with an entry, lockAt has checked this under its lock
		return account.Verdict{}, hybridlimit.ErrClosed
	case e != nil:
		ev := e.Event()
		return ev.End(e.Account.TimedOut(&ev.Conditions, n, ev.Now)), nil
	}
	return a.terms.WithoutMemory(key, at, n), nil
}

// Refused returns Redis's last refusal for a key, and the time. It reports whether that refusal still denies n units
// under this limit.
func (a *Asker) Refused(key string, at keys.Place, n int64) (r account.Refusal, now int64, ok bool) {
	if a.terms.Control.Exact() {
		return r, 0, false // ModeExact asks Redis for every call
	}
	e := a.terms.Store.Get(key)
	if e == nil {
		return r, 0, false
	}
	e.Lock()
	defer e.Unlock()
	r, now = e.Account.Refusal(), a.terms.Clock.Now()
	return r, now, !e.Dead() && e.Plan.Load().Limit == at.Plan.Limit && r.Holds(n, now)
}

// Refuse notes a refusal of n units that was received at now. An earlier refusal of at most n units stays while it
// holds. Only logs need this: ModeExact asks every time.
func (a *Asker) Refuse(key string, at keys.Place, n int64, ans wire.Answer, sent, now int64) {
	if a.terms.Control.Exact() || at.Plan.Kind != algo.KindLog {
		return
	}
	e, _, err := a.terms.LockAt(key, at)
	if e == nil || err != nil {
		return // memory has no room for the refusal: Redis is asked again
	}
	defer e.Unlock()
	e.Account.NoteRefusal(account.Refusal{
		N: n, Until: sent + ans.Retry*1000, Relook: now + clock.Jitter(account.MaxView),
		Left: at.Plan.Units(ans.Level), Reset: now + at.Plan.Reset(ans)*1000,
	}, now)
}

// StillNone notes an answer of Redis without units, so that the next Peek at the key does not ask again at once.
func (a *Asker) StillNone(key string) {
	if e := a.known(key); e != nil {
		ev := e.Event()
		e.Account.StillNone(&ev.Conditions, ev.Now)
		ev.End(account.Verdict{})
	}
}

// known returns the locked entry of a key in memory; nil: there is none.
func (a *Asker) known(key string) *keys.Entry {
	e := a.terms.Store.Get(key)
	if e == nil {
		return nil
	}
	e.Lock()
	if e.Dead() {
		e.Unlock()
		return nil
	}
	return e
}

// PeekAlone returns what a call for one unit would get for a key about which Redis does not answer.
func (a *Asker) PeekAlone(key string, at keys.Place) hybridlimit.Result {
	res := hybridlimit.Result{Limit: at.Plan.Shown, Policy: a.terms.Name}
	if a.terms.StrictDenies(at.Tag) {
		res.Source, res.RetryAfter = hybridlimit.SourceTimeout, a.terms.StrictRetry()
	} else {
		f := a.forecast(key, at)
		res.Allowed, res.Source, res.Remaining, res.RetryAfter = f.Allowed, f.Source, f.Left, time.Duration(f.Until)
	}
	res.ResetAfter = a.terms.ResetAfter(at.Plan, res.Remaining, 0)
	return res
}

// forecast returns what the fallback would decide about one unit of a key.
func (a *Asker) forecast(key string, at keys.Place) account.Forecast {
	e := a.known(key)
	if e == nil {
		return a.terms.ForecastAlone(key, at)
	}
	ev := e.Event()
	f := e.Account.Alone(&ev.Conditions, ev.Now)
	ev.End(account.Verdict{})
	return f
}

// Accept forgets the refusal of a key, because units were given back after it.
func (a *Asker) Accept(key string) {
	if e := a.terms.Store.Get(key); e != nil {
		e.Lock()
		defer e.Unlock()
		e.Account.Accept()
	}
}

// Left asks Redis for the units left of a key. Without an answer it reports false, and no units left.
func (a *Asker) Left(ctx context.Context, at keys.Place) (res hybridlimit.Result, ok bool) {
	res = hybridlimit.Result{Limit: at.Plan.Shown, Policy: a.terms.Name}
	ans, _, ok := a.Ask(ctx, at, algo.Op{})
	if ok {
		res.Remaining = at.Plan.Units(ans.Level)
		res.ResetAfter = time.Duration(at.Plan.Reset(ans)) * time.Microsecond
	}
	return res, ok
}

// NoteAbove keeps the answer of Redis for the next calls that cost more than the burst.
func (a *Asker) NoteAbove(e *keys.Entry, r *account.Plan, res hybridlimit.Result) {
	now := a.terms.Clock.Now()
	e.Lock()
	defer e.Unlock()
	if !e.Dead() && e.Plan.Load().Limit == r.Limit {
		e.Account.NoteAbove(account.Refusal{
			N: r.Most + 1, Until: int64(hybridlimit.Never), Relook: now + clock.Jitter(account.MaxView),
			Left: res.Remaining, Reset: now + int64(res.ResetAfter),
		}, now)
	}
}

// HistoryPage asks Redis for one page, unless the breaker is open.
func (a *Asker) HistoryPage(ctx context.Context, at keys.Place, after int64) (wire.Page, error) {
	if a.terms.Control.Mute() {
		return wire.Page{}, fmt.Errorf("hybrid: History: %w: the switch is %v", hybridlimit.ErrUnavailable, control.SwitchLocalOnly)
	}
	call, ok := a.env.Breaker(at.Tag).Begin()
	if !ok {
		return wire.Page{}, fmt.Errorf("hybrid: History: %w: the breaker is open", hybridlimit.ErrUnavailable)
	}
	bounded, cancel := context.WithTimeout(ctx, a.env.Engine.Timeout())
	defer cancel()
	a.terms.Clock.Begin()
	defer a.terms.Clock.End()
	sent := time.Now()
	p, err := a.env.Runner.History(bounded, a.terms.InRedis(at), at.Plan.Limit, after)
	a.env.Sent.Add(1)
	call.End(a.terms.Engine.Without(time.Since(sent)), a.blame(ctx, err))
	switch {
	case err == nil:
		return p, nil
	case a.terms.Control.Closed.Load():
		return p, hybridlimit.ErrClosed
	case ctx.Err() != nil:
		return p, ctx.Err()
	}
	return p, fmt.Errorf("hybrid: History: %w: %w", hybridlimit.ErrUnavailable, err)
}
