package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/gate"
	"github.com/hybridlimit/hybridlimit/internal/news"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
	"github.com/hybridlimit/hybridlimit/spend"
)

// Share is a limit of the servers that a fleet of clients keeps together: a budget of which each request takes its part
// before it is sent.
//
// A request takes Cost units of Limiter, and waits if there are none. When its response has come, the units left in the
// response lower those of Limiter (spend.Observe), less the units of requests of this Transport whose response has not
// come. So the fleet also keeps to what other users of the server have left. A refusal with status 429 or 403 stops all
// processes for its time (spend.Pause), and its units come back. At the end of the body, or at its Close, the units
// that the request did not use come back, and those beyond are charged (spend.Spend).
//
// A response whose body is not closed keeps its estimate, and so does a request without a response: the server may have
// counted it.
type Share struct {
	// Unit is the unit of the server's limit: "requests", or "tokens" of OpenAI and Anthropic, "input-tokens" and
	// "output-tokens" of Anthropic, or the qu of a RateLimit-Policy. The units left of other limits do not concern this
	// Share. A remaining with a reset in the past, or in more than a year, is ignored. Empty: "requests".
	Unit string
	// Limiter has the units. Give it the limit of the server, or the part of it that the fleet may use. Best is a
	// limiter of package hybrid: see spend.Observe and spend.Pause for those of other packages. Required. The caller
	// closes it.
	Limiter hybridlimit.Limiter
	// Key returns the key of the budget, for example the account at the server. Nil or "": the requests that
	// TransportConfig.Key groups, as "https://api.example.com", or "https://api.example.com core".
	Key KeyFunc
	// Cost returns the estimate of a request, in units. 0: the request does not concern this Share. A negative cost
	// fails the request (ErrCost). Nil: 1 unit.
	Cost func(r *http.Request) int64
	// Used returns the units that a request has used, from its response and the last 64 KB of the part of the body
	// that was read. It is called once, when the body has ended or is closed, from the goroutine that reads or closes
	// it. Negative: not known, and the estimate stands. Nil: the estimate stands.
	Used func(resp *http.Response, body []byte) int64
	// Window tells that the server counts in fixed windows, and that its reset is the end of the window, as that of
	// GitHub. Then what remains lasts until the reset (spend.ObserveWindow). False: the server's units come back as
	// those of Limiter do.
	Window bool
}

// check adds what is wrong with a Share.
func (s *Share) check(bad *adapter.Violations, i int) {
	field := fmt.Sprintf("TransportConfig.Shared[%d]", i)
	bad.AddIf(gate.IsNil(s.Limiter), field+".Limiter", nil, "must not be nil")
	if _, holds := s.Limiter.(hybridlimit.Acquirer); holds {
		bad.Add(field+".Limiter", fmt.Sprintf("%T", s.Limiter), "counts calls in flight, and has no units to lower")
	}
}

// covers reports whether a hint says what is left of the units of this Share.
func (s *Share) covers(one *hint) bool {
	usable := one.left >= 0 && !one.over && !one.mixed
	return usable && one.unit == cmp.Or(s.Unit, ratelimitheader.UnitRequests)
}

// purse is a key of a Share.
type purse struct {
	share int
	key   string
}

// purses counts the units of requests whose response has not come. It has no entry without such a request.
type purses struct {
	mu    sync.Mutex
	units map[purse]int64
}

func (p *purses) add(of purse, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.units == nil {
		p.units = map[purse]int64{}
	}
	if p.units[of] += n; p.units[of] == 0 {
		delete(p.units, of)
	}
}

func (p *purses) of(of purse) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.units[of]
}

// stake is the units that one try of a request has taken. The zero stake has none.
type stake struct {
	t     *Transport
	spend *spend.Spend
	parts []stakePart
}

type stakePart struct {
	purse
	n int64
}

// take takes the units of a request from all Shares, or from none. If there are none, wait is the time after which the
// same may be taken. If a limiter is a queue, the stake has a Spend, and wait is the time after which to send the
// request.
func (t *Transport) take(req *http.Request) (st stake, wait time.Duration, err error) {
	if len(t.cfg.Shared) == 0 {
		return stake{}, 0, nil
	}
	var asks []hybridlimit.Ask
	st.t = t
	for i := range t.cfg.Shared {
		s := &t.cfg.Shared[i]
		of, n := purse{share: i}, int64(1)
		if s.Cost != nil {
			n = s.Cost(req)
		}
		if n == 0 {
			continue
		}
		if s.Key != nil {
			of.key = s.Key(req)
		}
		if of.key == "" {
			of.key = t.siteKey(req)
		}
		asks = append(asks, hybridlimit.Ask{Limiter: s.Limiter, Key: of.key, N: n})
		st.parts = append(st.parts, stakePart{of, n})
	}
	if len(asks) == 0 {
		return stake{}, 0, nil
	}
	s, res, err := spend.Begin(req.Context(), asks...)
	switch {
	case err != nil:
		return stake{}, 0, fmt.Errorf("httplimit: TransportConfig.Shared: %w", err)
	case !res.Allowed && res.RetryAfter == hybridlimit.Never:
		err = fmt.Errorf("%w: the limit never has as many units", hybridlimit.ErrExceedsBurst)
		return stake{}, 0, fmt.Errorf("httplimit: TransportConfig.Shared: %w", err)
	case !res.Allowed:
		return stake{}, max(res.RetryAfter, time.Millisecond), nil
	}
	st.spend = s
	for _, p := range st.parts {
		t.flying.add(p.purse, p.n)
	}
	return st, res.Delay, nil
}

// landed notes that the response has come, or that none comes.
func (st *stake) landed() {
	for _, p := range st.parts {
		st.t.flying.add(p.purse, -p.n)
	}
}

// giveBack gives all units back: the request was not sent, or the server has refused it.
func (st *stake) giveBack(ctx context.Context) {
	for i := range st.parts {
		st.use(ctx, i, 0)
	}
	st.end(ctx)
}

// end settles the units. It works after ctx has ended.
func (st *stake) end(ctx context.Context) { st.warn(ctx, st.spend.Settle(ctx)) }

// use tells that part i has used n units in all.
func (st *stake) use(ctx context.Context, i int, n int64) {
	_, err := st.spend.Use(ctx, i, n)
	st.warn(ctx, err)
}

// warn logs that a limiter does not know of units, at most once a second. A limiter may have no pauses.
func (st *stake) warn(ctx context.Context, err error) {
	if err == nil || errors.Is(err, hybridlimit.ErrUnsupported) {
		return
	}
	if skipped, ok := st.t.untold.Due(); ok {
		st.t.logger().WarnContext(ctx, "httplimit: a limiter of TransportConfig.Shared was not told of units", "error", err, "skipped", skipped)
	}
}

// hear tells the limiters what a response says of their units.
func (st *stake) hear(ctx context.Context, resp *http.Response, hints []hint, a answer) {
	if st.spend == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	for i := range counts {
		if one, ok := counts[i].read(resp.Header, time.Time{}); ok && !stale(resp.Header) {
			hints = append(hints, one)
		}
	}
	for _, p := range st.parts {
		s := &st.t.cfg.Shared[p.share]
		observe := spend.Observe
		if s.Window {
			observe = spend.ObserveWindow
		}
		for i := range hints {
			if one := &hints[i]; s.covers(one) {
				left := max(0, one.left-st.t.flying.of(p.purse))
				st.warn(ctx, observe(ctx, s.Limiter, p.key, left, one.ends))
			}
		}
		if a.refused && a.after > 0 && resp.StatusCode != http.StatusServiceUnavailable {
			until := time.Now().Add(min(a.after, st.t.cfg.MaxBlock, longestPause))
			st.warn(ctx, spend.Pause(ctx, s.Limiter, p.key, until))
		}
	}
}

// longestPause leaves a second until the pause is told.
const longestPause = news.LongestPause - time.Second

// follow settles the units when the body of a response ends.
func (st *stake) follow(req *http.Request, resp *http.Response) {
	if st.spend == nil {
		return
	}
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		st.settle(req.Context(), resp, nil)
		return
	}
	b := &meteredBody{ReadCloser: resp.Body}
	for _, p := range st.parts {
		b.keeps = b.keeps || st.t.cfg.Shared[p.share].Used != nil
	}
	ended := *resp // Used sees the response without this body
	ended.Body = http.NoBody
	b.end = func(tail []byte) { st.settle(req.Context(), &ended, tail) }
	resp.Body = b
}

func (st *stake) settle(ctx context.Context, resp *http.Response, tail []byte) {
	ctx = context.WithoutCancel(ctx)
	defer st.end(ctx) // also after a panic of Used
	for i, p := range st.parts {
		used := st.t.cfg.Shared[p.share].Used
		if used == nil {
			continue
		}
		if n := used(resp, tail); n >= 0 {
			st.use(ctx, i, n)
		}
	}
}

// mostTail bounds the part of a body that is kept for Used, in bytes.
const mostTail = 64 << 10

// meteredBody calls end once, when the body has ended or is closed.
type meteredBody struct {
	io.ReadCloser
	keeps bool // the body is kept for end
	end   func(tail []byte)

	mu   sync.Mutex // Read and Close may run at the same time
	tail []byte     // at most twice mostTail
	done bool
}

// Read implements io.Reader.
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.keeps && n > 0 {
		b.keep(p[:n])
	}
	if err != nil {
		b.finish()
	}
	return n, err
}

// Close implements io.Closer.
func (b *meteredBody) Close() error {
	err := b.ReadCloser.Close()
	b.finish()
	return err
}

func (b *meteredBody) keep(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return
	}
	p = p[max(0, len(p)-mostTail):]
	if len(b.tail)+len(p) > 2*mostTail {
		b.tail = b.tail[:copy(b.tail, b.tail[len(b.tail)-mostTail:])]
	}
	b.tail = append(b.tail, p...)
}

func (b *meteredBody) finish() {
	b.mu.Lock()
	if b.done {
		b.mu.Unlock()
		return
	}
	b.done = true
	tail := b.tail[max(0, len(b.tail)-mostTail):]
	b.tail = nil
	b.mu.Unlock()
	b.end(tail)
}
