// Package echo5limit has the adapter for echo v5 of docs/http.md.
package echo5limit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// Echo returns a middleware of httplimit as a middleware of echo.
func Echo(mw func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			httplimit.Inside(mw, c.Response(), c.Request(), c.Path(), c, func(r *http.Request) { c.SetRequest(r); err = next(c) })
			return err
		}
	}
}
