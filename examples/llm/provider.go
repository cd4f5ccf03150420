package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// provider stands for a service with a language model. It counts tokens in windows of its own, and answers 429 when
// those of a window are used. A stranger uses the same account.
type provider struct {
	limit  int64
	period time.Duration
	began  time.Time // of a window

	mu      sync.Mutex
	random  *rand.Rand
	windows map[int64]*window
}

// window is what a window has counted.
type window struct{ fleet, stranger, served, refused int64 }

func newProvider(limit int64, period time.Duration) *provider {
	return &provider{
		limit: limit, period: period, began: time.Now().Add(-period / 3), random: rand.New(rand.NewPCG(1, 1)),
		windows: map[int64]*window{},
	}
}

// number returns the number of the present window.
func (p *provider) number() int64 { return int64(time.Since(p.began) / p.period) }

// at returns a window. Call it with mu locked.
func (p *provider) at(n int64) *window {
	if p.windows[n] == nil {
		p.windows[n] = new(window)
	}
	return p.windows[n]
}

// RoundTrip serves a request.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	ok, tokens, left, rest := p.count(read(r).MaxTokens)
	time.Sleep(p.takes())
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
	resp.Header.Set("anthropic-ratelimit-tokens-remaining", strconv.FormatInt(left, 10))
	resp.Header.Set("anthropic-ratelimit-tokens-reset", time.Now().Add(rest).Format(time.RFC3339Nano))
	if !ok {
		resp.StatusCode = http.StatusTooManyRequests
		return resp, nil
	}
	resp.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"text":"...","usage":{"total_tokens":%d}}`, tokens)))
	return resp, nil
}

// count counts a request that may use up to ceiling tokens. rest is the time until the next window.
func (p *provider) count(ceiling int64) (ok bool, tokens, left int64, rest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.at(p.number())
	if ok = w.fleet+w.stranger < p.limit; ok {
		tokens = 1 + p.random.Int64N(1+p.random.Int64N(ceiling))
		w.served, w.fleet = w.served+1, w.fleet+tokens
	} else {
		w.refused++
	}
	return ok, tokens, max(0, p.limit-w.fleet-w.stranger), p.period - time.Since(p.began)%p.period
}

// takes returns the time that a request takes.
func (p *provider) takes() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(20+p.random.Int64N(40)) * time.Millisecond
}

// strange uses a part of the limit for another user of the account, until a time.
func (p *provider) strange(part float64, until time.Time) {
	const step = 20 * time.Millisecond
	for ; time.Now().Before(until); time.Sleep(step) {
		p.mu.Lock()
		w := p.at(p.number())
		w.stranger += min(max(0, p.limit-w.fleet-w.stranger), int64(part*float64(p.limit)*float64(step)/float64(p.period)))
		p.mu.Unlock()
	}
}
