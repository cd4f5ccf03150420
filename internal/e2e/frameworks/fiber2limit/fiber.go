// Package fiber2limit has the adapter for fiber v2 of docs/http.md.
package fiber2limit

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Fiber returns a middleware of httplimit as a handler of fiber.
func Fiber(mw func(http.Handler) http.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		uri := c.Request().URI()
		r := (&http.Request{
			Method:        strings.Clone(c.Method()),
			URL:           &url.URL{Path: string(uri.Path()), RawQuery: string(uri.QueryString())},
			Header:        http.Header{},
			Body:          http.NoBody,
			ContentLength: max(int64(c.Request().Header.ContentLength()), -1),
			Host:          string(uri.Host()),
			RemoteAddr:    c.Context().RemoteAddr().String(),
			Pattern:       c.Route().Path,
		}).WithContext(context.WithValue(c.UserContext(), fiberKey{}, c))
		for name, values := range c.GetReqHeaders() {
			for _, v := range values {
				r.Header.Add(strings.Clone(name), strings.Clone(v))
			}
		}

		w := fiberWriter{c: c}
		if w.fields, _ = c.Locals(fiberKey{}).(http.Header); w.fields == nil {
			w.fields = http.Header{}
			c.Locals(fiberKey{}, w.fields)
		}
		for name := range w.fields { // of a middleware around this one
			c.Response().Header.Del(name)
		}
		ran := false
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true })
		mw(next).ServeHTTP(w, r)
		for name, values := range w.fields {
			for _, v := range values {
				c.Response().Header.Add(name, v)
			}
		}
		if ran {
			return c.Next()
		}
		return nil
	}
}

type fiberKey struct{}

// FiberContext returns the context of fiber, for use in a key function.
func FiberContext(r *http.Request) *fiber.Ctx {
	return r.Context().Value(fiberKey{}).(*fiber.Ctx)
}

type fiberWriter struct {
	c      *fiber.Ctx
	fields http.Header
}

func (w fiberWriter) Header() http.Header         { return w.fields }
func (w fiberWriter) WriteHeader(status int)      { w.c.Status(status) }
func (w fiberWriter) Write(b []byte) (int, error) { return w.c.Write(b) }
