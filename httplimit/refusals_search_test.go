//go:build search

package httplimit_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// A refusal with an endless body holds up no request: the body is not read, or only
// for a short time.
func TestRefusalsThatDoNotEnd(t *testing.T) {
	for name, length := range map[string]string{"no length": "", "a length": "1000"} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			end := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) > 1 {
					return
				}
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				w.WriteHeader(http.StatusTooManyRequests)
				io.WriteString(w, "wait")
				http.NewResponseController(w).Flush()
				select { // and then nothing
				case <-end:
				case <-r.Context().Done():
				}
			}))
			defer server.Close()
			defer close(end)
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			tr, err := httplimit.NewTransport(httplimit.TransportConfig{Base: base, Pause: time.Millisecond, MaxWait: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if took := time.Since(start); resp.StatusCode != 200 || took > 5*time.Second {
				t.Errorf("%d after %v, with MaxWait of 5 s", resp.StatusCode, took)
			}
		})
	}
}
