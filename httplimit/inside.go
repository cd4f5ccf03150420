package httplimit

import (
	"cmp"
	"context"
	"net/http"

	"github.com/hybridlimit/hybridlimit/clientkey"
)

// Inside runs a middleware inside a framework whose handlers are not an http.Handler, such as gin or echo. It is for
// adapters: docs/http.md has those of four frameworks.
//
// route is the pattern of the framework's route, for Pattern(nil); empty: none matches. framework is a value of the
// framework for key functions, which get it by Framework. next runs the rest of the framework's chain, with a request
// that it must pass on. Inside reports whether next has run. Otherwise the response is written.
//
// A permit of a call in flight is held until next has returned. Inside copies the request, because the context and the
// pattern of the framework's own must not change.
//
// Inside is for the middleware of this package, which never replaces the ResponseWriter. Middleware that does, such as
// one that compresses, needs another adapter.
func Inside(mw func(http.Handler) http.Handler, w http.ResponseWriter, r *http.Request, route string, framework any, next func(r *http.Request)) (ran bool) {
	r = r.WithContext(context.WithValue(r.Context(), frameworkKey{}, framework))
	r.Pattern = cmp.Or(route, clientkey.Unmatched)
	mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		next(r)
	})).ServeHTTP(w, r)
	return ran
}

type frameworkKey struct{}

// Framework returns the value that the adapter of a framework has passed to Inside, such as a *gin.Context. It is for
// key functions. It returns the zero T for a request of another framework, or of none.
func Framework[T any](r *http.Request) T {
	t, _ := r.Context().Value(frameworkKey{}).(T)
	return t
}
