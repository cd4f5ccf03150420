package main

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// visitor is the key of all requests to a card. All pages and curl share it.
const visitor = "visitor"

// card is one algorithm, perhaps with classes: a limiter behind httplimit, and the data for its drawing.
type card struct {
	id    string
	title string
	limit hybridlimit.Limit // guarded by mu

	limiter *local.Limiter
	classes []*callClass // of requests; nil: all are alike
	quick   http.Handler // for the page: it reports the delay of a queue and does not wait
	serve   http.Handler // for /try: it behaves like a service, for curl too
	changed func()       // called after each change

	mu      sync.Mutex
	windows pastWindows
	answers []answer // only the last one is shown
	dots    []dot
	seq     int64
	sent    int64
	passed  int64
	last    string // the result of the last request, with its reason
}

// answer is the response to a request, with everything that httplimit has written.
type answer struct {
	Seq     int64       `json:"seq"`
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers"`
	Body    string      `json:"body"`
	Delay   int64       `json:"delay_ms"` // of a queue
}

// dot is a request on the time line of the card.
type dot struct {
	At      int64  `json:"at"` // Unix ms
	Allowed bool   `json:"allowed"`
	Delay   int64  `json:"delay_ms"`
	Class   string `json:"class,omitempty"`
}

const maxDots = 240 // the most that the line shows

// cardState is the data that the page draws. The browser animates it from there on, so nothing is sent while nothing
// changes.
type cardState struct {
	ID        string       `json:"id"`
	Title     string       `json:"title"`
	Algorithm string       `json:"algorithm"`
	Seq       int64        `json:"seq"`
	Now       int64        `json:"now"` // Unix ms
	Rate      int64        `json:"rate"`
	PeriodMs  int64        `json:"period_ms"`
	Burst     int64        `json:"burst"`
	Text      string       `json:"text"` // the limit as text
	Remaining int64        `json:"remaining"`
	Used      float64      `json:"used"` // of buckets and queues, units, at Now
	Window    window       `json:"window"`
	Log       []logged     `json:"log"` // of a sliding log
	Answers   []answer     `json:"answers"`
	Dots      []dot        `json:"dots"`
	Sent      int64        `json:"sent"`
	Passed    int64        `json:"passed"`
	Last      string       `json:"last"`
	Classes   []classState `json:"classes"`
}

// logged is an entry of a sliding log.
type logged struct {
	At    int64 `json:"at"` // Unix ms
	Units int64 `json:"units"`
}

func newCard(id, title string, limit hybridlimit.Limit, changed func(), declared ...hybridlimit.Class) (*card, error) {
	limiter, err := local.New(limit, local.Config{Name: id, MaxKeys: 16, Classes: declared})
	if err != nil {
		return nil, err
	}
	classes, err := classesOf(limiter, declared)
	if err != nil {
		return nil, err
	}
	c := &card{
		id: id, title: title, limit: limit, limiter: limiter, classes: classes, changed: changed,
		last: "No request yet.",
	}
	if c.quick, err = c.service(true); err != nil {
		return nil, err
	}
	c.serve, err = c.service(false)
	return c, err
}

// service returns a handler behind the limit of the card.
func (c *card) service(quick bool) (http.Handler, error) {
	var cfg httplimit.Config
	if len(c.classes) > 0 {
		cfg.Class = func(r *http.Request) string { return r.PathValue("class") } // of the route, see /try
	}
	mw, err := httplimit.New(cfg, httplimit.Limit{
		Limiter: &overheard{c.limiter, c, nil, quick},
		Key:     func(*http.Request) string { return visitor },
	})
	if err != nil {
		return nil, err
	}
	return mw(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write([]byte("Hello.\n"))
	})), nil
}

// overheard is the card's limiter, and reports its results to the card, so that pages show the effect of a request
// while it is answered. If quick is set, the page shows the delay of a queue and the request does not wait for it.
type overheard struct {
	*local.Limiter
	card  *card
	class *callClass // nil: of no class
	quick bool
}

func (o *overheard) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return o.AllowN(ctx, key, 1)
}

func (o *overheard) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	c := o.card
	c.mu.Lock()
	res, err := o.Limiter.AllowN(ctx, key, n)
	if err == nil {
		c.note(time.Now(), n, o.class, res)
	}
	c.mu.Unlock()
	if !o.quick {
		c.changed()
	} else if delay, ok := ctx.Value(delayKey{}).(*time.Duration); ok {
		*delay, res.Delay = res.Delay, 0
	}
	return res, err
}

// delayKey is the context key of a *time.Duration in which the caller of the quick handler gets the delay of a queue.
type delayKey struct{}

// note is called with c.mu held.
func (c *card) note(now time.Time, n int64, class *callClass, res hybridlimit.Result) {
	c.seq++
	c.sent++
	if res.Allowed {
		c.passed++
		c.windows.add(now, c.limit.Period, n)
	}
	d := dot{At: now.UnixMilli(), Allowed: res.Allowed, Delay: res.Delay.Milliseconds()}
	if class != nil {
		d.Class = class.Name
		class.Sent++
		if res.Allowed {
			class.Passed++
		}
	}
	c.dots = latest(append(c.dots, d), maxDots)
	if class != nil {
		c.last = c.explainClass(class, res)
	} else {
		c.last = explain(c.limit, res, c.windows.at(now, c.limit.Period))
	}
}

// send makes n requests of a class, one after the other, and returns the answers. The class is "" on a card without
// classes.
func (c *card) send(class string, n int) []answer {
	var answers []answer
	for range n {
		// If the browser itself got a 429, it would log an error to its console each time.
		var delay time.Duration
		ctx := context.WithValue(context.Background(), delayKey{}, &delay)
		r, w := httptest.NewRequestWithContext(ctx, http.MethodGet, "/try/"+c.id, nil), httptest.NewRecorder()
		r.SetPathValue("class", class)
		c.quick.ServeHTTP(w, r)
		a := answer{Status: w.Code, Headers: [][2]string{}, Body: strings.TrimSpace(w.Body.String()), Delay: delay.Milliseconds()}
		for _, name := range slices.Sorted(maps.Keys(w.Header())) {
			for _, v := range w.Header()[name] {
				a.Headers = append(a.Headers, [2]string{name, v})
			}
		}
		answers = append(answers, a)
	}
	c.mu.Lock()
	for i := range answers {
		answers[i].Seq = c.seq
	}
	c.answers = answers[n-1:]
	if n > 1 {
		c.last = explainBurst(answers, c.last)
	}
	c.mu.Unlock()
	c.changed()
	return answers
}

// reset restores the initial state of the card.
func (c *card) reset() error {
	c.mu.Lock()
	err := c.limiter.Reset(context.Background(), visitor)
	c.seq++
	c.windows, c.answers, c.dots, c.sent, c.passed = pastWindows{}, nil, nil, 0, 0
	for _, class := range c.classes {
		class.Sent, class.Passed = 0, 0
	}
	c.last = "Reset to the initial state."
	c.mu.Unlock()
	c.changed()
	return err
}

// cardOrder is a limit that a page asks for.
type cardOrder struct {
	Rate     int64 `json:"rate"`
	PeriodMs int64 `json:"period_ms"`
	Burst    int64 `json:"burst"` // 0 for windows
}

// setLimit changes the limit. Used units stay used: see local.Limiter.SetLimit.
func (c *card) setLimit(q cardOrder) error {
	c.mu.Lock()
	limit := c.limit
	err := q.violations(windowed(limit)).Err("playground")
	if err == nil {
		limit.Rate, limit.Period, limit.Burst = q.Rate, time.Duration(q.PeriodMs)*time.Millisecond, q.Burst
		err = c.limiter.SetLimit(limit)
	}
	if err == nil {
		c.windows.change(time.Now(), c.limit.Period, limit.Period)
		c.limit, c.last = limit, "The limit is "+limit.String()+". Used units stay used."
		c.seq++
	}
	c.mu.Unlock()
	if err == nil {
		c.changed()
	}
	return err
}

// violations returns the fields that cannot be drawn, with the values that were sent.
func (q cardOrder) violations(windowed bool) adapter.Violations {
	var bad adapter.Violations
	bad.AddIf(q.Rate < 1 || q.Rate > 100, "rate", q.Rate, "must be 1 to 100 units")
	bad.AddIf(q.PeriodMs < 100 || q.PeriodMs > 60_000, "period_ms", q.PeriodMs, "must be 100 ms to a minute")
	bad.AddIf(windowed && q.Burst != 0, "burst", q.Burst, "must be 0: a window has no burst but its rate")
	bad.AddIf(!windowed && (q.Burst < 1 || q.Burst > 100), "burst", q.Burst, "must be 1 to 100 units")
	return bad
}

func windowed(l hybridlimit.Limit) bool {
	switch l.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow, hybridlimit.AlgSlidingLog:
		return true
	}
	return false
}

func (c *card) state() cardState {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	res, _ := c.limiter.Peek(context.Background(), visitor) // no error matters: the key is valid, and a closed limiter shows nothing
	s := cardState{
		ID: c.id, Title: c.title, Algorithm: c.limit.Algorithm.String(), Seq: c.seq, Now: now.UnixMilli(),
		Rate: c.limit.Rate, PeriodMs: c.limit.Period.Milliseconds(), Burst: c.limit.BurstSize(), Text: c.limit.String(),
		Remaining: res.Remaining, Window: c.windows.at(now, c.limit.Period),
		Answers: append([]answer{}, c.answers...), Dots: append([]dot{}, c.dots...),
		Sent: c.sent, Passed: c.passed, Last: c.last, Log: []logged{}, Classes: c.classStates(),
	}
	if !windowed(c.limit) {
		s.Used = res.ResetAfter.Seconds() * float64(c.limit.Rate) / c.limit.Period.Seconds()
	}
	if c.limit.Algorithm == hybridlimit.AlgSlidingLog {
		entries, _ := c.limiter.History(context.Background(), visitor)
		for _, e := range entries {
			s.Log = append(s.Log, logged{e.At.UnixMilli(), e.Units})
		}
	}
	return s
}

// pastWindows has the units admitted in this window and in the one before, as package local counts them. A limiter
// reports only the estimate, and the page draws its parts. Windows are aligned to Unix time.
type pastWindows struct {
	start     time.Time
	cur, prev int64
}

// window is a pastWindows at one time, for the page.
type window struct {
	Start int64 `json:"start"` // Unix ms
	Cur   int64 `json:"cur"`
	Prev  int64 `json:"prev"`
}

func (p *pastWindows) advance(now time.Time, period time.Duration) {
	start := time.Unix(0, now.UnixNano()/int64(period)*int64(period))
	switch start.Sub(p.start) {
	case 0:
		return
	case period:
		p.prev = p.cur
	default:
		p.prev = 0
	}
	p.start, p.cur = start, 0
}

func (p *pastWindows) add(now time.Time, period time.Duration, n int64) {
	p.advance(now, period)
	p.cur += n
}

func (p *pastWindows) at(now time.Time, period time.Duration) window {
	p.advance(now, period)
	return window{p.start.UnixMilli(), p.cur, p.prev}
}

// estimate returns the estimate of a sliding window, rounded up.
func (p *pastWindows) estimate(now time.Time, period time.Duration) int64 {
	p.advance(now, period)
	left := period - now.Sub(p.start)
	return p.cur + (p.prev*int64(left)+int64(period)-1)/int64(period)
}

// change applies a new period, as a sliding window does: the estimate becomes the count of the current window.
func (p *pastWindows) change(now time.Time, from, to time.Duration) {
	if from == to {
		return
	}
	n := p.estimate(now, from)
	*p = pastWindows{}
	p.add(now, to, n)
}
