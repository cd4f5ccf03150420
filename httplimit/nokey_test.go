package httplimit_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// Config.NoKey answers a request without a key, independent of Failure, and no limit
// is asked.
func TestNoKey(t *testing.T) {
	for answer, want := range map[httplimit.NoKey]struct {
		status       int
		title, level string
	}{
		httplimit.NoKeyDeny:            {429, "Too Many Requests", "WARN"},
		httplimit.NoKeyPass:            {200, "", "DEBUG"},
		http.StatusUnauthorized:        {401, "Unauthorized", "WARN"},
		http.StatusBadRequest:          {400, "Bad Request", "WARN"},
		http.StatusServiceUnavailable:  {503, "Service Unavailable", "WARN"},
		http.StatusInternalServerError: {500, "Internal Server Error", "WARN"},
	} {
		for _, failure := range []httplimit.Failure{httplimit.FailClosed, httplimit.FailOpen} {
			for _, required := range []bool{false, true} {
				if required && answer == httplimit.NoKeyPass {
					continue // refused by New
				}
				t.Run(answer.String()+"/"+failure.String(), func(t *testing.T) {
					var log lines
					recorder := limittest.Record(limittest.DenyAll(time.Minute))
					limits := []httplimit.Limit{{Limiter: recorder, Key: httplimit.APIKey("X-Api-Key", ""), Required: required, Name: "user"}}
					if required {
						limits = append([]httplimit.Limit{{Limiter: recorder, Key: httplimit.Everyone(), Name: "all"}}, limits...)
					}
					h := &served{}
					handler := middleware(t, httplimit.Config{NoKey: answer, Failure: failure, Logger: debugging(&log)}, limits...)(h)
					for range 3 {
						res := get(handler, func(r *http.Request) { r.URL.Path = "/users/7" })
						if res.StatusCode != want.status || (h.requests() > 0) != (want.status == 200) || len(recorder.Calls()) > 0 {
							t.Errorf("%d, %d served, %d asked", res.StatusCode, h.requests(), len(recorder.Calls()))
						}
						if len(res.Header["Retry-After"])+len(res.Header["Ratelimit"])+len(res.Header["Ratelimit-Policy"]) > 0 {
							t.Errorf("%v", res.Header)
						}
						var p struct{ Type, Title, Detail string }
						if want.status == 200 {
							continue
						}
						if err := json.NewDecoder(res.Body).Decode(&p); err != nil || p.Type != "" || p.Title != want.title || p.Detail == "" || res.Header.Get("Cache-Control") != "no-store" {
							t.Errorf("%+v, %v, %v", p, err, res.Header)
						}
					}
					if log.count() != 1 {
						t.Errorf("three requests are one line, not:\n%s", log.String())
					}
					for _, part := range []string{"level=" + want.level, "a request has no key", "method=GET", "route=/users/7", "answer=" + answer.String(), "remedy=", "Config.NoKey"} {
						if !strings.Contains(log.String(), part) {
							t.Errorf("%s is not in: %s", part, log.String())
						}
					}
					if required && !strings.Contains(log.String(), `limits[1] (\"user\")`) {
						t.Errorf("the limit is not named: %s", log.String())
					}
				})
			}
		}
	}
}

func debugging(to *lines) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Pattern(nil) has no key around a ServeMux: the line has the path, and the action to
// take. Inside the mux, the line of another limit has the pattern.
func TestNoKeyNamesTheRoute(t *testing.T) {
	for _, tc := range []struct {
		name, path, want string
		handler          func(mw func(http.Handler) http.Handler) http.Handler
		key              httplimit.KeyFunc
	}{
		{"around the mux", "/users/7", "route=/users/7", func(mw func(http.Handler) http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /users/{id}", &served{})
			return mw(mux)
		}, httplimit.Pattern(nil)},
		{"behind the mux", "/users/7", `route="GET /users/{id}"`, func(mw func(http.Handler) http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /users/{id}", mw(&served{}))
			return mux
		}, httplimit.APIKey("X-Api-Key", "")},
		{"a long path", "/" + strings.Repeat("é", 500_000), "route=/" + strings.Repeat("é", 63) + "… ", func(mw func(http.Handler) http.Handler) http.Handler {
			return mw(&served{})
		}, httplimit.Pattern(nil)},
	} {
		var log lines
		mw := middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: limittest.AllowAll(), Key: tc.key})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = tc.path
		tc.handler(mw).ServeHTTP(w, r)
		if w.Code != http.StatusTooManyRequests || !strings.Contains(log.String(), tc.want) || !strings.Contains(log.String(), "ServeMux") || log.Len() > 1000 {
			t.Errorf("%s: %d, %s", tc.name, w.Code, log.String())
		}
	}
}

// There is at most one line per second about requests without a key. It does not
// suppress lines about limiters that fail.
func TestNoKeyIsNoFloodInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		handler := middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: failing(hybridlimit.ErrUnavailable), Key: httplimit.APIKey("X-Api-Key", "")})(&served{})
		for range 100 {
			get(handler)
		}
		get(handler, header("X-Api-Key", "ann"))
		if log.count() != 2 || !strings.Contains(log.String(), "level=ERROR msg=\"httplimit: a limiter failed\"") {
			t.Errorf("%s", log.String())
		}
		time.Sleep(time.Second)
		get(handler)
		if log.count() != 3 || !strings.Contains(log.String(), "more=99") {
			t.Errorf("%s", log.String())
		}
	})
}

// Config.Denied gets the error and the status.
func TestNoKeyGoesToDenied(t *testing.T) {
	var got httplimit.Denial
	handler := middleware(t, httplimit.Config{
		NoKey:  http.StatusUnauthorized,
		Logger: slog.New(slog.DiscardHandler),
		Denied: func(w http.ResponseWriter, _ *http.Request, d httplimit.Denial) { got = d; w.WriteHeader(d.Status) },
	}, httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("")})(&served{})
	if res := get(handler); res.StatusCode != 401 || got.Status != 401 || !errors.Is(got.Err, httplimit.ErrNoLimit) || got.RetryAfter != 0 || got.Policies != nil {
		t.Errorf("%d, %+v", res.StatusCode, got)
	}
}

// An invalid NoKey is listed with everything else that is wrong. So is NoKeyPass
// beside a Required limit.
func TestNoKeyIsChecked(t *testing.T) {
	limit := httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("k")}
	for _, answer := range []httplimit.NoKey{-1, 2, 100, 200, 302, 399, 600, 1 << 30} {
		_, err := httplimit.New(httplimit.Config{NoKey: answer, Failure: 9}, limit)
		if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Config.NoKey ("+answer.String()+")") || !strings.Contains(err.Error(), "Config.Failure") {
			t.Errorf("%d: %v", int(answer), err)
		}
	}
	for _, answer := range []httplimit.NoKey{httplimit.NoKeyDeny, httplimit.NoKeyPass, 400, 599} {
		if _, err := httplimit.New(httplimit.Config{NoKey: answer}, limit); err != nil {
			t.Errorf("%d: %v", int(answer), err)
		}
	}
	limit.Required = true
	if _, err := httplimit.New(httplimit.Config{NoKey: httplimit.NoKeyPass}, limit); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "limits[0].Required") {
		t.Errorf("NoKeyPass beside Required: %v", err)
	}
}
