package spend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// ErrSettled is returned by Use and Settle of a Spend that is settled.
var ErrSettled = errors.New("spend: the call is settled already")

// Spend is the units of one running call under one or more limits. Make it with Begin. It is safe for concurrent use. A
// nil *Spend, of a call that was denied, does nothing, without an error.
type Spend struct {
	parts []part
	few   [2]part  // the memory of parts, for the usual number of asks
	after detached // the context of Settle
	id    string   // of the request

	mu      sync.Mutex // guards settled, and told and charged of the parts; when settled, told stays
	settled bool
}

// detached is a context that has not ended, with the values of another one. It is in the Spend, because
// context.WithoutCancel allocates.
type detached struct{ values context.Context }

func (*detached) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*detached) Done() <-chan struct{}                   { return nil }
func (*detached) Err() error                              { return nil }
func (d *detached) Value(key any) any                     { return d.values.Value(key) }

// part is one ask of a call.
type part struct {
	limiter hybridlimit.Limiter
	key     string
	n       int64 // the estimate
	taken   hybridlimit.Taken
	permit  hybridlimit.Permit
	counts  bool  // a limit has counted the estimate
	alone   bool  // in the fallback of this process, which takes nothing back
	told    int64 // the largest total; below 0: no Use has told of one
	charged int64 // units beyond the estimate
}

// Begin takes the estimates N of all asks, or none, as hybridlimit.AllowAll does. The limiter of a single ask may be of
// any type: Settle gives its units back by Refund, if it has that. Begin returns a Spend if the call is admitted, and
// otherwise nil. The Spend has the permits of asks whose Limiter is an Acquirer: Settle releases them. Begin writes
// each limit's answer into its ask, if a slice is passed. The errors are those of AllowAll.
func Begin(ctx context.Context, asks ...hybridlimit.Ask) (*Spend, hybridlimit.Result, error) {
	res, err := allow(ctx, asks)
	if !res.Allowed {
		return nil, res, err
	}
	s := &Spend{id: hybridlimit.RequestID(ctx)}
	s.parts = s.few[:0]
	for i := range asks {
		a := &asks[i]
		_, holds := a.Limiter.(hybridlimit.Acquirer)
		s.parts = append(s.parts, part{
			limiter: a.Limiter, key: a.Key, n: a.N, taken: a.Taken, permit: a.Permit, told: -1,
			counts: !holds && counted(&a.Result), alone: a.Result.Source == hybridlimit.SourceFallback,
		})
		a.Permit = hybridlimit.Permit{} // the Spend has it
	}
	return s, res, err
}

// allow is AllowAll, and AllowN of a single limiter that joins no other.
func allow(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	if len(asks) == 1 && asks[0].Limiter != nil {
		_, joins := asks[0].Limiter.(adapter.Joint)
		if _, holds := asks[0].Limiter.(hybridlimit.Acquirer); !joins && !holds {
			return allowAlone(ctx, &asks[0])
		}
	}
	return hybridlimit.AllowAll(ctx, asks...)
}

func allowAlone(ctx context.Context, ask *hybridlimit.Ask) (hybridlimit.Result, error) {
	res, err := ask.Limiter.AllowN(ctx, ask.Key, ask.N)
	ask.Permit, ask.Taken, ask.Result = hybridlimit.Permit{}, hybridlimit.Taken{}, res
	if r, ok := ask.Limiter.(refunder); ok && res.Allowed {
		ask.Taken = hybridlimit.NewTaken(refunds{r}, 0, 0, false)
	}
	return res, err
}

// refunder is a limiter that takes units back, whenever they were taken.
type refunder interface {
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

type refunds struct{ refunder }

// ReturnTaken implements hybridlimit.Returner.
func (r refunds) ReturnTaken(ctx context.Context, key string, n, _, _ int64, _ bool) error {
	_, err := r.Refund(ctx, key, n)
	return err
}

// counted reports whether a limit has counted units: Unlimited and switches count none, and a limit in shadow that
// would have denied took none.
func counted(res *hybridlimit.Result) bool {
	return res.Source != hybridlimit.SourceStatic && res.Source != hybridlimit.SourceSwitch && !res.Shadowed
}

// charger is a limiter that debits units after the fact.
type charger interface {
	Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

// Use tells that ask i has used total units so far. The first units are those of the estimate. Units beyond it are
// charged at once, with the Charge of the limiter. Totals do not fall: a total below an earlier one changes nothing.
// The Result is that of Charge. Without a charge, only Allowed and Granted are set. Use of an ask of an Acquirer
// changes nothing.
//
// The errors are ErrSettled, an *InvalidError for an i that is no ask, hybridlimit.ErrCost for a total below 0,
// ErrUnsupported for a limiter without Charge, and those of Charge. After an error of Charge the units beyond the
// estimate are untold: the next Use charges them again.
func (s *Spend) Use(ctx context.Context, i int, total int64) (hybridlimit.Result, error) {
	if s == nil {
		return hybridlimit.Result{}, nil
	}
	if i < 0 || i >= len(s.parts) {
		var bad adapter.Violations
		bad.Add("i", i, fmt.Sprintf("must be the index of one of the %d asks", len(s.parts)))
		return hybridlimit.Result{}, bad.Err("spend")
	}
	if total < 0 {
		return hybridlimit.Result{}, fmt.Errorf("spend: ask %d: total %d: %w: must not be negative", i, total, hybridlimit.ErrCost)
	}
	p := &s.parts[i]
	more, err := s.tell(p, total)
	if more == 0 || err != nil {
		return hybridlimit.Result{Allowed: err == nil, Granted: max(0, min(total, p.n))}, err
	}
	c, ok := news.Inner(p.limiter).(charger)
	if !ok {
		err = fmt.Errorf("spend: ask %d: %w: %T has no Charge", i, hybridlimit.ErrUnsupported, p.limiter)
	}
	var res hybridlimit.Result
	if ok {
		res, err = c.Charge(ctx, p.key, more)
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.charged -= more
	}
	return res, err
}

// tell notes a total, and returns the units that must be charged.
func (s *Spend) tell(p *part, total int64) (more int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled {
		return 0, ErrSettled
	}
	if !p.counts {
		return 0, nil
	}
	more = max(0, total-p.n-p.charged)
	p.told = max(p.told, total)
	p.charged += more
	return more, nil
}

// Settle ends the call: it gives back the units that were taken and not used, and releases the permits. It works after
// ctx has ended, so defer it. Only the first Settle has an effect; another one returns ErrSettled. The units of each
// ask go with the next sync of its key, or with one message if Redis decides each call. An error names the ask whose
// units did not come back. They then stay used, and come back as the limit refills.
func (s *Spend) Settle(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	if s.settled {
		s.mu.Unlock()
		return ErrSettled
	}
	s.settled = true
	s.mu.Unlock()
	for i := range s.parts {
		s.parts[i].permit.Release()
	}
	s.after.values = ctx
	ctx = &s.after
	if s.id != hybridlimit.RequestID(ctx) { // a log has the units under the id of Begin
		ctx, _ = hybridlimit.WithRequestID(ctx, s.id) // it was valid in Begin
	}
	var failed []error
	for i := range s.parts {
		if err := s.parts[i].giveBack(ctx); err != nil {
			failed = append(failed, fmt.Errorf("spend: ask %d: %w", i, err))
		}
	}
	return errors.Join(failed...)
}

// giveBack gives back what no Use has told of.
func (p *part) giveBack(ctx context.Context) error {
	back := p.n - p.told
	switch {
	case !p.counts || p.told < 0 || back <= 0 || p.alone:
		return nil
	case p.taken == hybridlimit.Taken{}:
		return fmt.Errorf("%w: %T takes no units back", hybridlimit.ErrUnsupported, p.limiter)
	}
	return p.taken.Return(ctx, p.key, back)
}
