package neighbours

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// leased is a limiter of leased rates.
type leased struct {
	limiter *hybrid.RateLeaseLimiter
	books   LeasedBooks
}

// LeasedBooks has the counts of a limiter of leased rates in one process.
type LeasedBooks struct {
	Name     string
	Granted  int64 // units, to callers
	Fallback int64 // the part of Granted that the fallback admitted
	Share    int64 // as in Books
	Stats    hybrid.RateLeaseStats
}

func addLeased(h *hybrid.Hub) (*leased, error) {
	const name = "beside-leased"
	l, err := h.RateLeases(hybridlimit.TokenBucket(1, period/10, Units), hybrid.RateLeaseConfig{Name: name})
	return &leased{limiter: l, books: LeasedBooks{Name: name}}, err
}

// rate makes a call of a leased rate.
func (s *Set) rate(l *leased) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.draw(60))*time.Millisecond)
	defer cancel()
	if s.draw(8) == 0 {
		if _, err := l.limiter.Peek(ctx, "k"); err != nil && !over(err) {
			s.violate("%s: %v", l.books.Name, err)
		}
		return
	}
	res, err := l.limiter.AllowN(ctx, "k", 1+int64(s.draw(most)))
	if err != nil {
		if !over(err) {
			s.violate("%s: %v", l.books.Name, err)
		}
		return
	}
	fleet := max(1, l.limiter.Stats().Fleet)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.books.Granted += res.Granted
	if res.Source == hybridlimit.SourceFallback && res.Allowed {
		l.books.Fallback += res.Granted
		l.books.Share = max(l.books.Share, 1, (Units+fleet-1)/fleet)
	}
}

// checkLeased compares the limiters of leased rates with the promises.
func (w World) checkLeased(fleet []Report, found func(format string, args ...any)) {
	var shared, alone, shares int64
	for p, r := range fleet {
		b := r.Leased
		shared, alone, shares = shared+b.Granted-b.Fallback, alone+b.Fallback, shares+b.Share
		if s := b.Stats; s.Paid+s.Owed+s.Dropped != b.Fallback {
			found("%s, process %d: the fallback has admitted %d units: %+v", b.Name, p, b.Fallback, s)
		}
	}
	if most := Units * int64(1+w.Losses); shared > most {
		found("beside-leased admitted %d units with Redis, want at most %d", shared, most)
	}
	if alone > shares {
		found("beside-leased admitted %d units without Redis, want at most %d", alone, shares)
	}
}
