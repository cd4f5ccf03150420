package httplimit

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// always is a server that gives the same answer to all requests.
type always struct {
	status int
	fields http.Header
}

func (a always) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: a.fields, Body: http.NoBody}, nil
}

// With any fields of a vendor, no request waits for longer than MaxBlock and its jitter, nothing panics, and the memory
// of a site is bounded.
func FuzzVendorFields(f *testing.F) {
	for _, text := range []string{"0", "9", "1.5", "-1", "NaN", "Inf", "1e30", "1000000000000000000000000000000", "9223372036854775807", "1970-01-01T00:00:00Z", "2026-01-02T03:05:00Z", "9999-12-31T23:59:59Z", "1767323105", "1767323105000", "6m0s", "", "soon"} {
		for _, status := range []int{200, 403, 429, 503} {
			f.Add(status, text, "0", "10", "", "abcd")
			f.Add(status, "60", text, text, "", text)
			f.Add(status, text, "1", "1000", text, "")
			f.Add(status, text, "0", text, "Thu, 01 Jan 1970 00:00:00 GMT", "")
		}
	}
	f.Fuzz(func(t *testing.T, status int, reset, left, limit, other, bucket string) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
			h := http.Header{}
			for _, of := range sources {
				h.Set(of.remaining, left)
				h.Set(of.limit, limit)
				for _, name := range of.resets {
					h.Set(name, reset)
				}
				for _, name := range of.buckets {
					h.Set(name, bucket)
				}
			}
			for _, name := range []string{fieldRetryAfter, "Retry-After-Ms", "Date"} {
				if other != "" {
					h.Set(name, other)
				}
			}
			tr, err := NewTransport(TransportConfig{Base: always{status, h}, MaxWait: 1 << 62, MaxBlock: time.Minute, MaxRetries: -1})
			if err != nil {
				t.Fatal(err)
			}
			var callers sync.WaitGroup
			for range 3 {
				callers.Go(func() {
					for range 3 {
						r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://api.test/", nil)
						if _, err := tr.RoundTrip(r); err != nil {
							t.Error(err)
						}
					}
				})
			}
			start := time.Now()
			callers.Wait()
			// Each of nine requests may be followed by a pause, and each caller may find itself behind the pauses of others.
			if took := time.Since(start); took > 9*66*time.Second {
				t.Errorf("nine requests took %v", took)
			}
			s := tr.sites.Of("http://api.test")
			if b := s.blocked(time.Now()); b > time.Minute {
				t.Errorf("blocked for %v", b)
			}
			mine := s.slot(time.Now(), 0.2, time.Minute)
			if mine.wait < 0 || len(s.windows) > maxWindows {
				t.Errorf("a wait of %v, %d windows", mine.wait, len(s.windows))
			}
			for _, w := range s.windows {
				if w.left < 0 || w.quota < 0 || len(w.partition) > maxValue || time.Until(w.ends) > farthest {
					t.Errorf("%+v", w)
				}
			}
		})
	})
}

// However many buckets a server names, a site remembers eight.
func TestBucketsAreBounded(t *testing.T) {
	tr, err := NewTransport(TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s := tr.sites.Of("h")
	for i := range 1000 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26%26))
		for _, long := range []string{name, string(make([]byte, 1<<16)) + name} {
			h := http.Header{}
			for k, v := range map[string]string{fieldBucket: long, fieldRemaining: "5", fieldReset: "9"} {
				h.Set(k, v)
			}
			tr.observe(s, uint64(i), &http.Response{StatusCode: 200, Header: h})
		}
	}
	kept := 0
	for _, w := range s.windows {
		kept += len(w.partition)
	}
	if len(s.windows) != maxWindows || kept > maxWindows*maxValue {
		t.Errorf("%d windows, %d bytes", len(s.windows), kept)
	}
}
