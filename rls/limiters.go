package rls

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/moves"
	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// kind names a limiter: there is one for each domain, algorithm, overshoot and number of parts. All keys of its rules
// share it.
type kind struct {
	domain    string
	algorithm hybridlimit.Algorithm
	overshoot float64 // 0: none
	split     int     // number of parts of a key; 0: keys are whole
}

// kindOf returns the kind of the limiter of a rule.
func kindOf(r *rules.Rule) kind { return kind{r.Domain, r.Limit.Algorithm, r.Overshoot, r.Split} }

// name returns the name of the limiter. It is the same in all processes.
func (k kind) name() string {
	hash := sha256.Sum256([]byte(k.domain))
	domain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, k.domain)
	name := "rls." + domain[:min(len(domain), 60)] + "." + hex.EncodeToString(hash[:4]) + "." + strings.ReplaceAll(k.algorithm.String(), " ", "-")
	if k.overshoot != 0 {
		name += ".over" + strconv.FormatFloat(k.overshoot, 'g', 6, 64)
	}
	if k.split > 1 {
		name += ".split" + strconv.Itoa(k.split)
	}
	return strings.ReplaceAll(name, "+", "p")
}

// base returns the limit of a limiter. Each key has a limit of its own, so that this one is of no key. All versions
// must agree on it. It is large enough for credit: otherwise the hub would log a warning about it.
func (k kind) base() hybridlimit.Limit {
	if k.algorithm == hybridlimit.AlgCalendarWindow {
		return hybridlimit.CalendarWindow(1000, hybridlimit.Calendar{Unit: hybridlimit.Year})
	}
	return hybridlimit.Limit{Algorithm: k.algorithm, Rate: 1000, Period: 364 * day}
}

// limiters makes the limiters of a hub. A limiter stays until the hub is closed, so that a rule that comes back finds
// its counts. Only another set of floors replaces it: see withFloors.
type limiters struct {
	hub      *hybrid.Hub
	cfg      hybrid.Config // of all limiters
	limitFor func(k kind, key string) hybridlimit.Limit

	mu sync.RWMutex
	of map[kind]made
}

// made is the limiter of a kind.
type made struct {
	limiter *hybrid.Limiter
	floors  []float64     // of its classes, ascending
	left    chan struct{} // closed when another limiter has taken its place; nil: it stays
}

// get returns the limiter of a kind.
func (ls *limiters) get(k kind) (*hybrid.Limiter, error) {
	ls.mu.RLock()
	l := ls.of[k].limiter
	ls.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.of[k].limiter; l != nil {
		return l, nil
	}
	return ls.make(k, nil)
}

// make makes the limiter of a kind. The caller holds mu.
func (ls *limiters) make(k kind, floors []float64) (*hybrid.Limiter, error) {
	cfg := ls.cfg
	cfg.Classes, cfg.Split = nil, nil
	for _, floor := range floors {
		cfg.Classes = append(cfg.Classes, hybrid.Class{Name: className(floor), Floor: floor})
	}
	cfg.Name, cfg.Overshoot, cfg.MaxKeyBytes = k.name(), k.overshoot, maxKeyBytes
	if k.overshoot == 0 {
		cfg.Overshoot = -1 // none; 0 is the default of hybrid
	}
	// A Redis with fewer tags is one server: parts would gain nothing.
	if parts := min(k.split, moves.HomeOf(ls.hub).Tags); parts > 1 {
		cfg.Split = func(string) int { return parts }
	}
	cfg.LimitFor = func(key string) hybridlimit.Limit { return ls.limitFor(k, key) }
	// A reload and an override invalidate the keys whose limit has changed.
	cfg.LimitRefresh = hybridlimit.Never
	l, err := ls.hub.Limiter(k.base(), cfg)
	if err != nil {
		return nil, fmt.Errorf("rls: the limiter of the domain %q, %v: %w", k.domain, k.algorithm, err)
	}
	ls.of[k] = made{limiter: l, floors: floors}
	return l, nil
}

// askAgain makes the limiters of the given kinds ask for the limit of each key with its next call. A key whose limit
// has not changed keeps its level.
func (ls *limiters) askAgain(kinds map[kind]bool) error {
	var errs []error
	for k := range kinds {
		l, err := ls.get(k)
		if err == nil {
			err = l.InvalidateAll()
		}
		if err != nil && !errors.Is(err, hybridlimit.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
