package gate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// Gate asks the limits of one adapter.
type Gate struct {
	joint    adapter.Joint // asks all limits without Brings together; nil: they are asked in turn
	failOpen bool
	Log      *Log // of all requests that are not decided normally
	Holds    bool // requests may hold permits while they run: call Release

	kind    Kind
	shedder any    // that the adapter asks; nil: none
	uses    []*use // of the limiters and of the Shedder
}

// New returns a Gate for these limits, which Checked has accepted, and for a Shedder or nil. Call Stands for each of
// its places in a chain.
func New(kind Kind, limits []Limit, shedder any, failOpen bool, log *Log) *Gate {
	holds := slices.ContainsFunc(limits, func(l Limit) bool { return l.Holds() })
	g := &Gate{joint: jointOf(limits), failOpen: failOpen, Log: log, Holds: holds, kind: kind, shedder: shedder}
	for _, l := range limits {
		g.uses = append(g.uses, useOf(kind, l.Limiter))
	}
	if shedder != nil {
		g.uses = append(g.uses, useOf(kind, shedder))
	}
	return g
}

// Answer is the decision about a request. It is taken once: a client may leave between two looks at its context.
type Answer struct {
	Denied int   // index of the part that denies, or -1
	Err    error // of a limiter that could not decide; the last one of several
	Admits bool  // no part denies, and FailOpen admits a request for which a limiter could not decide
}

// Ask decides a request, and logs why a limiter could not decide. Permits are acquired first. The limit with Brings is
// asked when the others have admitted. An admitted request holds its permits until Release. Any other one has them
// released and its units given back, also after a panic of a limiter or of the logger.
func (g *Gate) Ask(ctx context.Context, parts []Part) (a Answer) {
	held := 0
	for held < len(parts) && parts[held].Holds() {
		held++
	}
	panics := true
	defer func() {
		switch {
		case panics:
			g.GiveBack(ctx, parts)
		case !a.Admits:
			Release(parts[:held])
		}
	}()
	a = g.askInTurn(ctx, parts[:held], 0)
	if a.Admits && held < len(parts) {
		rates := g.askRates(ctx, parts[held:])
		if a.Admits = rates.Admits; rates.Err != nil {
			a.Err = rates.Err
		}
		if rates.Denied >= 0 {
			a.Denied = held + rates.Denied
		}
	}
	if a.Err != nil {
		g.Log.Failed(ctx, a.Err, parts)
	}
	panics = false
	return a
}

// askRates is Ask for limits of rates.
func (g *Gate) askRates(ctx context.Context, parts []Part) Answer {
	first := len(parts)
	if first > 0 && parts[first-1].Brings {
		first--
	}
	if g.joint == nil || first < 2 {
		return g.askInTurn(ctx, parts, 0)
	}
	a := g.askTogether(ctx, parts[:first])
	if !a.Admits {
		return a
	}
	last := g.askInTurn(ctx, parts, first)
	if last.Err == nil {
		last.Err = a.Err
	}
	return last
}

// askTogether asks all limiters in one call. Of several parts that deny, Denied is the one with the longest wait. After
// a denial the results of the other parts may stay unknown.
func (g *Gate) askTogether(ctx context.Context, parts []Part) Answer {
	asks := make([]hybridlimit.Ask, len(parts))
	for i := range parts {
		p := &parts[i]
		asks[i] = hybridlimit.Ask{Limiter: p.limiter(), Key: p.Key, N: p.N}
	}
	res, err := g.joint.AllowJoint(ctx, asks)
	unavailable, err := g.unavailable(ctx, res, err, parts)
	if err != nil {
		if g.Passes(ctx, err) { // no unit was charged; ask in turn, so that the other limits still apply
			g.Log.Failed(ctx, err, parts)
			return g.askInTurn(ctx, parts, 0)
		}
		return Answer{Denied: -1, Err: err}
	}
	denied := -1
	for i := range parts {
		p, one := &parts[i], asks[i].Result
		p.Res, p.Unavailable = one, unavailable && one.Source == hybridlimit.SourceFallback
		if !res.Allowed && one.Source != hybridlimit.SourceUnknown && (denied < 0 || one.RetryAfter > parts[denied].Res.RetryAfter) {
			denied = i
		}
	}
	if !res.Allowed && denied < 0 { // this Joint does not report which part denies
		denied, parts[0].Res, parts[0].Unavailable = 0, res, unavailable
	}
	return Answer{Denied: denied, Admits: res.Allowed}
}

// askInTurn asks the limiters one after the other, from the part of this index on. After a denial the earlier parts get
// their units back. The same holds after a failure, unless FailOpen admits the request.
func (g *Gate) askInTurn(ctx context.Context, parts []Part, from int) Answer {
	a := Answer{Denied: -1}
	for i := from; i < len(parts); i++ {
		p := &parts[i]
		res, failure := p.allow(ctx)
		if p.Unavailable, failure = g.unavailable(ctx, res, failure, parts); failure != nil {
			a.Err = failure
			if g.Passes(ctx, failure) {
				p.Passed = true
				continue
			}
			g.GiveBack(ctx, parts[:i])
			return a
		}
		if p.Res = res; !res.Allowed {
			g.GiveBack(ctx, parts[:i])
			a.Denied = i
			return a
		}
	}
	a.Admits = true
	return a
}

// allow asks the limiter, under the limit that the request brings, or acquires permits.
func (p *Part) allow(ctx context.Context) (hybridlimit.Result, error) {
	if p.Holds() {
		permit, res, err := p.acquirer.AcquireN(ctx, p.Key, p.N)
		p.permit = permit
		return res, err
	}
	if p.GivenOK {
		return p.limited().AllowLimit(ctx, p.Key, p.N, p.Given)
	}
	return p.limiter().AllowN(ctx, p.Key, p.N)
}

// unavailable reports whether a limiter decided without Redis: by its fallback, and with ErrUnavailable. An error
// beside a decision is logged and dropped, for example if units could not be given back. Any other error is returned.
func (g *Gate) unavailable(ctx context.Context, res hybridlimit.Result, err error, parts []Part) (bool, error) {
	switch {
	case err == nil || res.Source == hybridlimit.SourceUnknown:
		return false, err
	case errors.Is(err, hybridlimit.ErrUnavailable) && res.Source == hybridlimit.SourceFallback:
		g.Log.degraded(ctx, err, parts)
		return true, nil
	}
	g.Log.Failed(ctx, err, parts)
	return false, nil
}

// refunder is a limiter that can take units back.
type refunder interface {
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

// wrapper is a limiter around another one.
type wrapper interface{ Unwrap() hybridlimit.Limiter }

// refunderOf returns the limiter, or the first limiter that it wraps (Unwrap), that is a refunder.
func refunderOf(l hybridlimit.Limiter) (refunder, bool) {
	for {
		if r, ok := l.(refunder); ok {
			return r, true
		}
		w, ok := l.(wrapper)
		if !ok {
			return nil, false
		}
		l = w.Unwrap()
	}
}

// giveBackTimeout bounds GiveBack, which continues after the request has ended: the units must be returned even if the
// client has gone.
const giveBackTimeout = time.Second

// GiveBack returns the units and permits of a request that another limit denied, that could not wait, or that was shed.
// A limiter that cannot take units back keeps them: they come back as its limit refills.
func (g *Gate) GiveBack(ctx context.Context, parts []Part) {
	if len(parts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for i := range parts {
		p := &parts[i]
		if p.Holds() {
			p.permit.Release()
			continue
		}
		if p.returned {
			continue
		}
		p.returned = true
		if p.GivenOK {
			continue // Refund would put the key under its own limit
		}
		if err := refund(ctx, p.limiter(), p.Key, p.N, &p.Res); err != nil {
			g.Log.Failed(ctx, err, parts)
		}
	}
}

// GiveBack returns the units of a call that could not wait. It does the same as for a request of a Gate, but drops
// errors.
func GiveBack(ctx context.Context, l hybridlimit.Limiter, key string, n int64, res *hybridlimit.Result) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_ = refund(ctx, l, key, n, res)
}

// refund returns the units of a result, if any were charged.
func refund(ctx context.Context, l hybridlimit.Limiter, key string, n int64, res *hybridlimit.Result) error {
	if !res.Allowed || res.Shadowed || uncounted(res.Source) {
		return nil // no unit was charged, or none is counted
	}
	r, ok := refunderOf(l)
	if !ok {
		return nil
	}
	_, err := r.Refund(ctx, key, n)
	return err
}

// uncounted reports whether no limiter counts the units of an admission from this source.
func uncounted(s hybridlimit.Source) bool {
	return s == hybridlimit.SourceFallback || s == hybridlimit.SourceStatic || s == hybridlimit.SourceSwitch
}

// Place asks the Shedder for a place for a request that the limits have admitted. If it gives none, the limits get
// their units back. The permit is zero if the Shedder failed and FailOpen admits the request.
func (g *Gate) Place(ctx context.Context, s hybridlimit.Shedder, class string, parts []Part) (hybridlimit.Permit, hybridlimit.Result, error) {
	permit, res, err := s.Acquire(ctx, class)
	if err != nil {
		g.Log.Failed(ctx, err, parts)
		res.Allowed = g.Passes(ctx, err)
	}
	if res.Allowed {
		return permit, res, nil
	}
	g.GiveBack(ctx, parts)
	return hybridlimit.Permit{}, res, err
}

// requestErrors are the errors that an invalid key or cost causes.
var requestErrors = [...]error{
	hybridlimit.ErrKeyTooLong, hybridlimit.ErrEmptyKey, hybridlimit.ErrCost, hybridlimit.ErrExceedsBurst,
}

// BadRequest reports whether the request's key or cost caused the error.
func BadRequest(err error) bool {
	for _, bad := range requestErrors {
		if errors.Is(err, bad) {
			return true
		}
	}
	return false
}

// misconfigured reports whether LimitFor returned a limit for the key that the limiter rejects.
func misconfigured(err error) bool {
	return errors.Is(err, hybridlimit.ErrInvalid) || errors.Is(err, hybridlimit.ErrUnsupported)
}

// Passes reports whether a request is admitted although a limiter returned err. It lists the errors of a limiter that
// cannot decide for any key. A client may be able to cause any other error, and could so evade the limit. A client may
// also choose the deadline of its own request.
func (g *Gate) Passes(ctx context.Context, err error) bool {
	if !g.failOpen || ctx.Err() != nil || BadRequest(err) || misconfigured(err) {
		return false
	}
	if errors.Is(err, hybridlimit.ErrUnavailable) || errors.Is(err, hybridlimit.ErrClosed) {
		return true
	}
	_, bounded := ctx.Deadline()
	return !bounded && errors.Is(err, context.DeadlineExceeded)
}

// Shape waits until the request's place in all queues has come. If its context ends before, Shape returns the units of
// all parts and fails. This frees the place at the end of the queue: if others wait behind the request, a later request
// may start at the same time as another.
func (g *Gate) Shape(ctx context.Context, parts []Part) error {
	var delay time.Duration
	for i := range parts {
		delay = max(delay, parts[i].Res.Delay)
	}
	if delay <= 0 {
		return nil
	}
	if err := Sleep(ctx, delay); err != nil {
		g.GiveBack(ctx, parts)
		return err
	}
	for i := range parts { // the answer is sent after the delay
		res := &parts[i].Res
		res.ResetAfter = max(0, res.ResetAfter-delay)
	}
	return nil
}

// Sleep waits for d, or until ctx ends. It fails at once if ctx's deadline comes before the end of d.
func Sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TooLate reports whether ctx ends before a wait is over.
func TooLate(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < wait
}

// Longer returns a wait with a random addition of at most this fraction of it, and less than hybridlimit.Never.
func Longer(wait time.Duration, most float64) time.Duration {
	if most <= 0 || wait <= 0 {
		return wait
	}
	more := min(most*rand.Float64()*float64(wait), math.MaxInt64/2)
	if wait += time.Duration(more); wait < 0 {
		return hybridlimit.Never - 1
	}
	return wait
}

// spread is the most by which a client lengthens the wait that a server names, so that clients do not return at the
// same time.
const spread = 0.1

// Spread returns a wait that is up to a tenth longer.
func Spread(wait time.Duration) time.Duration { return Longer(wait, spread) }

// Enter waits while a server accepts no request, for at most the duration most. blocked returns the rest of that time,
// which may grow meanwhile. busy is the rest if the request cannot wait for it, and else 0.
func Enter(ctx context.Context, most time.Duration, blocked func(now time.Time) time.Duration) (waited, busy time.Duration, err error) {
	for {
		if ctx.Err() != nil {
			return waited, 0, ctx.Err()
		}
		block := blocked(time.Now())
		if block <= 0 {
			return waited, 0, nil
		}
		if block > most-waited || TooLate(ctx, block) {
			return waited, block, nil
		}
		if later := Spread(block); later <= most-waited && !TooLate(ctx, later) {
			block = later
		}
		if err := Sleep(ctx, block); err != nil {
			return waited, 0, err
		}
		waited += block
	}
}

// OrDefault sets a zero field to its default.
func OrDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
