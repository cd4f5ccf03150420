package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/shed"
)

// The classes of requests, the most important first. The limit of the service and the shedder know both.
const (
	critical = hybrid.ClassCritical // payments
	rest     = "rest"               // all else
)

// maxWait is the time for which a limiter waits for Redis. It is long because the
// stand-in for Redis shares the processors with the load. The default is 20 ms.
const maxWait = 500 * time.Millisecond

// quiet drops log lines, so that the program prints only its results.
var quiet = slog.New(slog.DiscardHandler)

// The routes of the service.
const (
	payment = "POST /payments"
	listing = "GET /listings"
	report  = "GET /reports" // keeps the dependency busy for long
)

// classOf returns the class of a route. A client cannot make up its class, as it could if the class were in a header.
func classOf(route string) string {
	if route == payment {
		return critical
	}
	return rest
}

// newService returns the service without a limiter. All endpoints need the dependency.
func newService(d *dependency) *http.ServeMux {
	mux := http.NewServeMux()
	for route, calls := range map[string]time.Duration{payment: 1, listing: 1, report: 13} {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			if err := d.call(r.Context(), calls); err != nil {
				http.Error(w, "the dependency did not answer in time", http.StatusGatewayTimeout)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	return mux
}

// limits are the limiters that share their state through Redis.
type limits struct {
	perUser, service *hybrid.Limiter
	running          *hybrid.ConcurrencyLimiter
}

func newLimits(hub *hybrid.Hub) (l limits, err error) {
	// Rate: a user may be greedy, and must not harm the others.
	l.perUser, err = hub.Limiter(hybridlimit.TokenBucket(10, time.Second, 20), hybrid.Config{Name: "user", MaxWait: maxWait})
	if err != nil {
		return l, err
	}
	// Critical reserve: all users together must not take more than the service can
	// do. The last 30 units of the burst are for payments.
	l.service, err = hub.Limiter(hybridlimit.TokenBucket(150, time.Second, 100), hybrid.Config{
		Name:    "service",
		Classes: []hybrid.Class{{Name: rest, Floor: 0.3}},
		MaxWait: maxWait,
	})
	if err != nil {
		return l, err
	}
	// Concurrent requests: a rate is no measure for requests that take long. A user
	// may run three reports at once, in the whole fleet.
	l.running, err = hub.Concurrency(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{Name: "reports"})
	return l, err
}

// alone returns the number of decisions that were made without Redis, because it did not answer in time.
func (l limits) alone() int64 {
	n := int64(0)
	for _, of := range []hybridlimit.Limiter{l.perUser, l.service, l.service.ForClass(rest)} {
		s := of.(*hybrid.Limiter).Stats()
		n += s.Allowed[hybridlimit.SourceFallback] + s.Denied[hybridlimit.SourceFallback]
	}
	return n
}

// protect puts the limiters in front of the service, the cheapest first. Payments and listings pass the reserve and the
// shedder. Reports pass the limit of concurrent requests instead: they are long, so to the shedder they would look like
// a slow dependency.
func protect(l limits, shedder hybridlimit.Shedder, class func(route string) string, mux *http.ServeMux) (http.Handler, error) {
	rate, err := httplimit.New(httplimit.Config{NoKey: http.StatusUnauthorized},
		httplimit.Limit{Limiter: l.perUser, Key: httplimit.User("", user)})
	if err != nil {
		return nil, err
	}
	// The shedder is in the same middleware, so that a shed request costs no unit.
	reserve, err := httplimit.New(
		httplimit.Config{
			Class: func(r *http.Request) string {
				_, route := mux.Handler(r)
				return class(route)
			},
			Shedder: shedder,
		},
		httplimit.Limit{Limiter: l.service, Key: httplimit.Everyone()},
	)
	if err != nil {
		return nil, err
	}
	running, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: l.running, Key: httplimit.User("", user)})
	if err != nil {
		return nil, err
	}
	all := http.NewServeMux()
	all.Handle(report, rate(running(mux)))
	all.Handle("/", rate(reserve(mux)))
	return all, nil
}

// newShedder returns the shedder: a slow dependency must not fill its pool with listings.
func newShedder() (*shed.Shedder, error) {
	return shed.New(shed.Config{
		Classes: []string{critical, rest},
		Healthy: 3 * normal,
		// The pool less the connections that payments need while the dependency is
		// slow: ten a second for 0.8 s, and some room.
		MaxInFlight: 30,
		MaxWait:     3 * normal,
		Logger:      quiet,
	})
}

// user returns the user of a request, or "". In a service, it is the result of an
// authentication, which this example does not have.
func user(r *http.Request) string {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return name
}
