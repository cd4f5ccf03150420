package tell

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The lines about denials.
const (
	MsgDenied     = "hybridlimit: denied"
	MsgMoreDenied = "hybridlimit: more denials"
)

// Denials bounds how often a denial is logged. It also counts the denials without a line of their own: each is in the
// "more" of one later line. The fast path counts its denials in the budgets; they can be logged when the budgets have
// been taken back.
type Denials struct {
	line *rate.Limiter // by the hub's clock

	mu     sync.Mutex // guards the fields below; not held while logging
	told   int64      // logged denials, without those from budgets
	words  int64      // logged denials from budgets
	waited bool       // the last heartbeat found unlogged denials, and no line was written since
	closed bool       // the limiter is closed: a line may be written at any time
}

// NewDenials returns the bound for a Config.LogDenials.
func NewDenials(every time.Duration) Denials {
	return Denials{line: rate.NewLimiter(rate.Every(every), 1)}
}

// Due reports whether a line is due. A rounding error does not matter: take decides. Call it without d.mu.
func (d *Denials) Due(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed || d.line.TokensAt(now) > 1-1e-9
}

// Take returns the number of unlogged denials and marks them as logged. It returns false and marks nothing in two
// cases: the next line is not due, or fewer than least denials from outside the budgets are unlogged. With least 1, the
// second case means that another line has already counted the caller's denial. Call it without d.mu.
func (d *Denials) Take(c *Counts, least int64, now time.Time) (untold int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	told, words := c.denials()
	untold = told - d.told
	if untold < least || !d.closed && !d.line.AllowN(now, 1) {
		return 0, false
	}
	// c.denials may have been too high for a moment when d.words was set: the next lines make up for it.
	fresh := max(0, words-d.words)
	d.told, d.words, d.waited = told, d.words+fresh, false
	return untold + fresh, true
}

// Waiting reports whether denials have waited for a line since the previous heartbeat. Call it without d.mu.
func (d *Denials) Waiting(c *Counts) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	told, words := c.denials()
	was := d.waited
	d.waited = told > d.told || words > d.words
	return was && d.waited
}

// End makes each later line due: the limiter is closed.
func (d *Denials) End() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
}
