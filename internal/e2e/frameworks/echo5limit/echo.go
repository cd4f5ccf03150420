// Package echo5limit has the adapter for echo v5 of docs/http.md.
package echo5limit

import (
	"cmp"
	"context"
	"net/http"

	"github.com/labstack/echo/v5"
)

// Echo returns a middleware of httplimit as a middleware of echo.
func Echo(mw func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				err = next(c)
			})
			r := c.Request().WithContext(context.WithValue(c.Request().Context(), echoKey{}, c))
			r.Pattern = cmp.Or(c.Path(), "unmatched")
			mw(handler).ServeHTTP(c.Response(), r)
			return err
		}
	}
}

type echoKey struct{}

// EchoContext returns the context of echo, for use in a key function.
func EchoContext(r *http.Request) *echo.Context {
	return r.Context().Value(echoKey{}).(*echo.Context)
}
