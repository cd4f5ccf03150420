package httplimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/exported"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// blamed has each error of this module, and the status of a request for which a
// limiter returns it, with FailClosed and with FailOpen. List each new error here:
// decide whether a client's key, cost or header can cause it.
var blamed = map[string]struct {
	err          error
	closed, open int
}{
	"hybridlimit.ErrClosed":      {hybridlimit.ErrClosed, 503, 200},
	"hybridlimit.ErrUnavailable": {hybridlimit.ErrUnavailable, 503, 200},
	"global.NotReturnedError":    {&global.NotReturnedError{Err: hybridlimit.ErrUnavailable}, 503, 200}, // no decision beside it

	"hybridlimit.ErrEmptyKey":     {hybridlimit.ErrEmptyKey, 400, 400},
	"hybridlimit.ErrKeyTooLong":   {hybridlimit.ErrKeyTooLong, 400, 400},
	"hybridlimit.ErrCost":         {hybridlimit.ErrCost, 400, 400},
	"hybridlimit.ErrExceedsBurst": {hybridlimit.ErrExceedsBurst, 400, 400},

	"hybridlimit.ErrInvalid":     {hybridlimit.ErrInvalid, 503, 503},
	"hybridlimit.InvalidError":   {&hybridlimit.InvalidError{Package: "local"}, 503, 503},
	"hybrid.ErrFleetKeysFull":    {hybrid.ErrFleetKeysFull, 503, 503},                                                                  // of SetFleetKeyLimit, never of a call
	"hybrid.SettingsError":       {&hybrid.SettingsError{Limiter: "api", Err: &hybridlimit.InvalidError{Package: "hybrid"}}, 503, 503}, // of SetSettings, never of a call
	"hybridlimit.ErrUnsupported": {hybridlimit.ErrUnsupported, 503, 503},
	"hybridlimit.ErrTooManyKeys": {hybridlimit.ErrTooManyKeys, 503, 503}, // a client can cause it with many keys
	"hybridlimit.ErrNilClient":   {hybridlimit.ErrNilClient, 503, 503},
	"httplimit.ErrNoLimit":       {httplimit.ErrNoLimit, 503, 503},
	"httplimit.ErrNoKey":         {httplimit.ErrNoKey, 503, 503},
	"httplimit.BusyError":        {&httplimit.BusyError{}, 503, 503},
	"limittest.ErrScriptOver":    {limittest.ErrScriptOver, 503, 503},
	"breaker.ErrSlow":            {breaker.ErrSlow, 503, 503},
	"wire.ErrFull":               {wire.ErrFull, 503, 503},
	"wire.ErrRefused":            {wire.ErrRefused, 503, 503},
	"wire.ErrReply":              {wire.ErrReply, 503, 503}, // limiters wrap it in ErrUnavailable
}

// Of all errors that the module exports, only those of an unavailable limiter admit
// a request, and only with FailOpen: with one limit, and in a joint call.
func TestErrorsThatPass(t *testing.T) {
	listed := slices.Sorted(maps.Keys(blamed))
	found, err := exported.Errors("..", "../local", "../global", "../hybrid", "../lua", "../internal/wire", "../sync", "../breaker", "../limittest", "../otellimit", ".")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, listed) {
		t.Errorf("the module exports the errors\n%q, and blamed has\n%q: add each error to blamed, with its statuses", found, listed)
	}
	ends, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	type row struct {
		err          error
		closed, open int
		ctx          context.Context
	}
	rows := map[string]row{
		"the limiter's deadline":            {context.DeadlineExceeded, 503, 200, t.Context()},
		"a deadline, and the request's too": {context.DeadlineExceeded, 503, 503, ends},
		"something cancelled":               {context.Canceled, 503, 503, t.Context()},
		"no Redis, and a bad key":           {fmt.Errorf("%w: %w", hybridlimit.ErrUnavailable, hybridlimit.ErrKeyTooLong), 400, 400, t.Context()},
		"no Redis, and a bad limit":         {fmt.Errorf("%w: %w", hybridlimit.ErrUnavailable, hybridlimit.ErrInvalid), 503, 503, t.Context()},
	}
	for name, b := range blamed {
		rows[name] = row{b.err, b.closed, b.open, t.Context()}
	}
	for name, row := range rows {
		err := fmt.Errorf("wrapped: %w", row.err)
		for how, want := range map[httplimit.Failure]int{httplimit.FailClosed: row.closed, httplimit.FailOpen: row.open} {
			for kind, limits := range map[string][]httplimit.Limit{
				"alone":    {{Limiter: failing(err), Key: fixed("k")}},
				"first":    {{Limiter: failing(err), Key: fixed("k"), Name: "a"}, {Limiter: limittest.AllowAll(), Key: fixed("k"), Name: "b"}},
				"last":     {{Limiter: limittest.AllowAll(), Key: fixed("k"), Name: "a"}, {Limiter: failing(err), Key: fixed("k"), Name: "b"}},
				"together": {{Limiter: failingJoint{failure{err}}, Key: fixed("k"), Name: "a"}, {Limiter: failingJoint{failure{err}}, Key: fixed("k"), Name: "b"}},
			} {
				h := &served{}
				mw := middleware(t, httplimit.Config{Failure: how, Logger: slog.New(slog.DiscardHandler)}, limits...)
				res := get(mw(h), func(r *http.Request) { *r = *r.WithContext(row.ctx) })
				if res.StatusCode != want || h.requests() > 0 != (want == 200) {
					t.Errorf("%s, %s, %v: %d, want %d", name, kind, how, res.StatusCode, want)
				}
			}
		}
	}
}

// failingJoint fails in joint calls too.
type failingJoint struct{ failure }

func (f failingJoint) Joins(hybridlimit.Limiter) bool { return true }

func (f failingJoint) AllowJoint(context.Context, []hybridlimit.Ask) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, f.err
}

// limitersOf makes two limiters of each kind that can be asked together.
var limitersOf = map[string]func(t *testing.T, rdb redis.UniversalClient, limitFor func(string) hybridlimit.Limit) [2]hybridlimit.Limiter{
	"local": func(t *testing.T, _ redis.UniversalClient, limitFor func(string) hybridlimit.Limit) (two [2]hybridlimit.Limiter) {
		for i, name := range []string{"a", "b"} {
			l, err := local.New(hybridlimit.PerMinute(2), local.Config{Name: name, LimitFor: limitFor})
			two[i] = l
			if limitFor = nil; err != nil {
				t.Fatal(err)
			}
		}
		return two
	},
	"global": func(t *testing.T, rdb redis.UniversalClient, limitFor func(string) hybridlimit.Limit) (two [2]hybridlimit.Limiter) {
		for i, name := range []string{"a", "b"} {
			l, err := global.New(rdb, hybridlimit.PerMinute(2), global.Config{Name: name, LimitFor: limitFor, FailOpen: true})
			two[i] = l
			if limitFor = nil; err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}
		return two
	},
	"hybrid": func(t *testing.T, rdb redis.UniversalClient, limitFor func(string) hybridlimit.Limit) (two [2]hybridlimit.Limiter) {
		hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { hub.Close() })
		for i, name := range []string{"a", "b"} {
			l, err := hub.Limiter(hybridlimit.PerMinute(2), hybrid.Config{Name: name, LimitFor: limitFor, MaxWait: time.Second})
			two[i] = l
			if limitFor = nil; err != nil {
				t.Fatal(err)
			}
		}
		return two
	},
}

// No key or cost that a client chooses gets a request past a limit, even with
// FailOpen: for each package, alone and together, with Redis and without.
func TestNoKeyOrCostPasses(t *testing.T) {
	attacks := map[string]struct {
		key   string
		cost  int64
		limit hybridlimit.Limit // what LimitFor returns for the key
		want  int
	}{
		"a key without a limit":       {"unknown", 1, hybridlimit.Limit{}, 503},
		"a limit that is invalid":     {"invalid", 1, hybridlimit.Limit{Rate: -1, Period: time.Second}, 503},
		"a limit of a wrong kind":     {"window", 1, hybridlimit.FixedWindow(5, time.Minute), 503},
		"an algorithm that is none":   {"algorithm", 1, hybridlimit.Limit{Algorithm: 200, Rate: 1, Period: time.Second}, 503},
		"a limit that cannot be held": {"large", 1, hybridlimit.Limit{Rate: math.MaxInt64, Period: time.Hour}, 503},
		"a blocked key":               {"blocked", 1, hybridlimit.Blocked(), 429},
		"a huge key":                  {strings.Repeat("x", 1<<20), 1, hybridlimit.PerMinute(2), 400},
		"a cost below 0":              {"k", -1, hybridlimit.PerMinute(2), 400},
		"the smallest cost":           {"k", math.MinInt64, hybridlimit.PerMinute(2), 400},
		"a cost above the burst":      {"k", 3, hybridlimit.PerMinute(2), 429},
		"the largest cost":            {"k", math.MaxInt64, hybridlimit.PerMinute(2), 429},
	}
	limitFor := func(key string) hybridlimit.Limit {
		for _, a := range attacks {
			if a.key == key {
				return a.limit
			}
		}
		return hybridlimit.PerMinute(2)
	}
	for kind, limiters := range limitersOf {
		for _, redisUp := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/Redis %t", kind, redisUp), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					two := limiters(t, b.Client(nil), limitFor)
					time.Sleep(3 * time.Second)
					if !redisUp {
						b.Kill()
						time.Sleep(5 * time.Second)
					}
					for name, a := range attacks {
						cost := func(*http.Request) int64 { return a.cost }
						for shape, limits := range map[string][]httplimit.Limit{
							"alone":     {{Limiter: two[0], Key: fixed(a.key), Cost: cost}},
							"together":  {{Limiter: two[0], Key: fixed(a.key), Cost: cost}, {Limiter: two[1], Key: fixed("all")}},
							"the other": {{Limiter: two[1], Key: fixed("all")}, {Limiter: two[0], Key: fixed(a.key), Cost: cost}},
							"in turn":   {{Limiter: limittest.AllowAll(), Key: fixed("all"), Name: "c"}, {Limiter: two[0], Key: fixed(a.key), Cost: cost}},
						} {
							for _, failure := range []httplimit.Failure{httplimit.FailClosed, httplimit.FailOpen} {
								h := &served{}
								res := get(middleware(t, httplimit.Config{Failure: failure, Logger: slog.New(slog.DiscardHandler)}, limits...)(h))
								if res.StatusCode != a.want && (redisUp || res.StatusCode != 503) || h.requests() > 0 {
									t.Errorf("%s, %s, %v: %d, want %d", name, shape, failure, res.StatusCode, a.want)
								}
							}
						}
					}
				})
			})
		}
	}
}

// An invalid limit of LimitFor, an invalid key and an unavailable limiter have log
// lines of their own: none of them suppresses another.
func TestFailuresHaveLinesOfTheirOwn(t *testing.T) {
	var log lines
	refused := limitersOf["local"](t, nil, func(string) hybridlimit.Limit { return hybridlimit.Limit{} })[0]
	of := map[string]hybridlimit.Limiter{"plan": refused, "bad": limittest.AllowAll(), "down": failing(hybridlimit.ErrUnavailable)}
	handler := middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: choice{of}, Key: func(r *http.Request) string { return r.Header.Get("Case") }})(&served{})
	for range 3 {
		for name := range of {
			get(handler, header("Case", name))
		}
	}
	for _, want := range []string{
		`level=ERROR msg="httplimit: a limiter has no valid limit for a key; the request is answered 503"`, "remedy=", "[key]",
		`level=WARN msg="httplimit: a request has an invalid key or cost; it is answered 400"`,
		`level=ERROR msg="httplimit: a limiter failed"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in the log:\n%s", want, log.String())
		}
	}
	if log.count() != 3 {
		t.Errorf("nine failures of three kinds are three lines, not:\n%s", log.String())
	}
}

// choice asks the limiter that is named by the key.
type choice struct {
	of map[string]hybridlimit.Limiter
}

func (c choice) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return c.AllowN(ctx, key, 1)
}

func (c choice) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if key == "bad" {
		n = 0
	}
	return c.of[key].AllowN(ctx, key, n)
}
