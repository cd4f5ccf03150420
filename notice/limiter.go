package notice

import (
	"context"
	"reflect"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// Limiter decides as the limiter that it wraps, and tells crossings. Make one with New. It is safe for concurrent use.
type Limiter struct {
	watch     *watch
	next      hybridlimit.Limiter
	describes adapter.Describer
	peeks     peeker
	part      bool // next is a class: it does not see the units of its floor
}

var (
	_ adapter.Describer = (*Limiter)(nil)
	_ adapter.Joint     = (*Limiter)(nil)
	_ adapter.Classer   = (*Limiter)(nil)
)

// peeker is a limiter that tells what is left, and takes nothing.
type peeker interface {
	Peek(ctx context.Context, key string) (hybridlimit.Result, error)
}

// wrapper is a limiter around another one.
type wrapper interface{ Unwrap() hybridlimit.Limiter }

// peekerOf returns the limiter, or the first one that it wraps, that is a peeker; nil: there is none.
func peekerOf(l hybridlimit.Limiter) peeker {
	for {
		if p, ok := l.(peeker); ok {
			return p
		}
		w, ok := l.(wrapper)
		if !ok {
			return nil
		}
		l = w.Unwrap()
	}
}

// New returns a limiter that decides as the given one, and tells cfg.On when a key has crossed a threshold. It starts
// one goroutine, which ends with Close. The error is an *InvalidError with everything that is wrong with the arguments.
//
// New asks LimitFor once for the limit of an empty key, to know the algorithm. A panic of that says nothing.
//
// A key to which LimitFor gives Unlimited or Blocked has no crossings. If a limiter of your own gives a key a limit
// without windows, its crossings cannot be told. That is logged and counted (Stats.Unwatched).
func New(limiter hybridlimit.Limiter, cfg Config) (*Limiter, error) {
	if err := check(limiter, cfg); err != nil {
		return nil, err
	}
	w := newWatch(limiter, cfg)
	go w.run()
	return (*w.views.Load())[0], nil
}

// of returns a view of a limiter: the one of New, or a class.
func (w *watch) of(limiter hybridlimit.Limiter) *Limiter {
	l := &Limiter{watch: w, next: limiter, describes: w.whole, peeks: peekerOf(limiter)}
	if d, ok := limiter.(adapter.Describer); ok {
		l.describes = d
	}
	if l.peeks == nil {
		l.peeks = w.peeks
	}
	l.part = !same(w.whole, limiter) && !same(w.whole, news.Inner(limiter))
	return l
}

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (res hybridlimit.Result, err error) {
	res, err = l.next.Allow(ctx, key)
	l.note(key, &res)
	return res, err
}

// AllowN asks the limiter, and notes its Result. After Close it only asks.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res hybridlimit.Result, err error) {
	res, err = l.next.AllowN(ctx, key, n)
	l.note(key, &res)
	return res, err
}

// Peek is Peek of the limiter. Its Result counts for no crossing.
func (l *Limiter) Peek(ctx context.Context, key string) (hybridlimit.Result, error) {
	return l.peeks.Peek(ctx, key)
}

// Unwrap returns the limiter, for access to its other methods. The look after a call sees the units that they take.
func (l *Limiter) Unwrap() hybridlimit.Limiter {
	if l == nil {
		return nil
	}
	return l.next
}

// Name returns the limiter's name.
func (l *Limiter) Name() string { return l.describes.Name() }

// Policy returns the limiter's policy for a key.
func (l *Limiter) Policy(key string) hybridlimit.Policy { return l.describes.Policy(key) }

// mostClasses bounds the views that are kept. The limiters of this module have 8 classes at most.
const mostClasses = 16

// ForClass returns the limiter of a class, if the limiter has classes, and else the limiter itself. It is for adapters.
// The classes of a key have the same crossings: of the whole limit, by the units of all classes. Close closes all.
func (l *Limiter) ForClass(name string) hybridlimit.Limiter {
	c, ok := l.next.(adapter.Classer)
	if !ok {
		return l
	}
	next := c.ForClass(name)
	for {
		views := l.watch.views.Load()
		for _, of := range *views {
			if same(of.next, next) {
				return of
			}
		}
		made, n := l.watch.of(next), len(*views)
		more := append((*views)[:n:n], made)
		if n == mostClasses || l.watch.views.CompareAndSwap(views, &more) {
			return made
		}
	}
}

// same reports whether two limiters are one. Limiters that cannot be compared are different.
func same(x, y hybridlimit.Limiter) bool { return reflect.TypeOf(x).Comparable() && x == y }

// isNil reports whether a limiter or the pointer in it is nil.
func isNil(l hybridlimit.Limiter) bool {
	if l == nil {
		return true
	}
	v := reflect.ValueOf(l)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
