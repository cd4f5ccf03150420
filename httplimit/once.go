package httplimit

import (
	"net/http"
	"runtime"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// stands notes a handler that asks the limits and the Shedder.
func (g *middleware) stands() {
	for _, l := range g.limits {
		l.Use.Stands()
	}
	g.shedder.Stands()
}

// flight returns the request as the middleware around this one has marked it. It is zero
// if no limiter has a second place in any chain.
func (g *middleware) flight(w http.ResponseWriter, r *http.Request) gate.Flight {
	often := g.shedder.Often()
	for _, l := range g.limits {
		often = often || l.Use.Often()
	}
	if !often {
		return gate.Flight{}
	}
	return gate.FlightOf(r.Header, w.Header())
}

// pass calls the next handler. Middleware inside it finds what was counted.
func (g *middleware) pass(w http.ResponseWriter, r *http.Request, next http.Handler, f gate.Flight, parts []gate.Part) {
	if f != (gate.Flight{}) {
		defer runtime.KeepAlive(r.Header) // its address names the flight
		defer runtime.KeepAlive(w.Header())
		m := f.Begin(parts, g.shedder)
		defer f.End(m)
	}
	next.ServeHTTP(w, r)
}
