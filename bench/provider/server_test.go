package provider

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// server counts requests in fixed windows that begin at a time of its own, or in a bucket of a second. It answers 429
// when there are no units. A request counts half of its latency after it was sent.
type server struct {
	limit  int64
	period time.Duration
	bucket bool
	began  time.Time // of a window

	mu      sync.Mutex
	rng     *rand.Rand
	window  int64 // the number of the window since began
	used    int64 // units of the window, of all
	level   float64
	at      time.Time // of level
	windows map[int64]*tally
}

// tally is one window.
type tally struct {
	served, refused int64 // requests of the fleet
	stranger        int64 // requests of the stranger that were served
}

func newServer(limit int64, period time.Duration, bucket bool, rng *rand.Rand) *server {
	began := time.Now().Add(-time.Duration(rng.Int64N(int64(period))))
	return &server{limit: limit, period: period, bucket: bucket, began: began, at: began, rng: rng, windows: map[int64]*tally{}}
}

// count counts one request. left is what remains, and ends the time until the next window, or until there is a unit.
func (s *server) count(own bool) (ok bool, left int64, ends time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Since(s.began)
	if n := int64(since / s.period); n != s.window {
		s.window, s.used = n, 0
	}
	w := s.windows[s.window]
	if w == nil {
		w = new(tally)
		s.windows[s.window] = w
	}
	left, ends = s.limit-s.used, s.period-since%s.period
	if s.bucket {
		rate := float64(s.limit) / float64(s.period)
		s.level = min(s.level+rate*float64(time.Since(s.at)), rate*float64(time.Second))
		s.at, left, ends = time.Now(), int64(s.level), time.Duration(max(0, 1-s.level)/rate)
	}
	if ok = left > 0; ok {
		left--
		s.used++
		s.level--
	}
	switch {
	case ok && own:
		w.served++
	case own:
		w.refused++
	case ok:
		w.stranger++
	}
	return ok, left, ends
}

// latency is 40 to 200 ms.
func (s *server) latency() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 40*time.Millisecond + time.Duration(s.rng.Int64N(int64(160*time.Millisecond)))
}

// RoundTrip implements http.RoundTripper for the fleet. The fields are those of GitHub, or of OpenAI for a bucket.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	half := s.latency() / 2
	time.Sleep(half)
	ok, left, ends := s.count(true)
	time.Sleep(half)
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
	if s.bucket {
		resp.Header.Set("X-RateLimit-Remaining-Requests", strconv.FormatInt(left, 10))
	} else {
		resp.Header.Set("X-RateLimit-Limit", strconv.FormatInt(s.limit, 10))
		resp.Header.Set("X-RateLimit-Remaining", strconv.FormatInt(left, 10))
		resp.Header.Set("X-RateLimit-Reset-After", strconv.FormatFloat(ends.Seconds(), 'f', 3, 64))
	}
	if !ok {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", strconv.FormatInt(int64((ends+time.Second-1)/time.Second), 10))
	}
	return resp, nil
}
