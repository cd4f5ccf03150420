// Package fiberlimit has the adapter for fiber v3 of docs/http.md.
//
// Fiber's own adaptor.HTTPMiddleware is not used for three reasons. It overwrites the lines of a repeated request field
// with the last one. It starts a goroutine for each request, so that the recovery does not receive the value of a
// panic. It costs 1.6 to 2 times as much: medians of 6.4 µs and 13 µs a request on an AMD EPYC with 2 shared cores, by
//
//	cd internal/test/e2e/frameworks && go test -tags search -run '^$' -bench Fiber -count 7
package fiberlimit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// Fiber returns a middleware of httplimit as a handler of fiber.
func Fiber(mw func(http.Handler) http.Handler) fiber.Handler {
	return func(c fiber.Ctx) (err error) {
		w := newFiberWriter(c)
		httplimit.Inside(mw, w, fiberRequest(c), c.Route().Path, c, func(*http.Request) { w.flush(); err = c.Next() })
		return err
	}
}

// fiberRequest returns what key and cost functions see of a request. Its texts are copies.
func fiberRequest(c fiber.Ctx) *http.Request {
	uri := c.Request().URI()
	r := (&http.Request{
		Method:        strings.Clone(c.Method()),
		URL:           &url.URL{Path: string(uri.Path()), RawQuery: string(uri.QueryString())},
		Header:        http.Header{},
		Body:          http.NoBody,
		ContentLength: max(int64(c.Request().Header.ContentLength()), -1),
		Host:          string(uri.Host()),
		RemoteAddr:    c.RequestCtx().RemoteAddr().String(),
	}).WithContext(c.Context())
	for name, values := range c.GetReqHeaders() {
		for _, v := range values {
			r.Header.Add(strings.Clone(name), strings.Clone(v))
		}
	}
	return r
}

// fiberWriter writes a denial. Limits around each other share the fields of a response.
type fiberWriter struct {
	c      fiber.Ctx
	fields http.Header
}

type fiberKey struct{}

func newFiberWriter(c fiber.Ctx) fiberWriter {
	fields, _ := c.Locals(fiberKey{}).(http.Header)
	if fields == nil {
		fields = http.Header{}
		c.Locals(fiberKey{}, fields)
	}
	return fiberWriter{c, fields}
}

func (w fiberWriter) flush() {
	for name, values := range w.fields {
		w.c.Response().Header.Del(name)
		for _, v := range values {
			w.c.Response().Header.Add(name, v)
		}
	}
}

func (w fiberWriter) Header() http.Header         { return w.fields }
func (w fiberWriter) WriteHeader(status int)      { w.flush(); w.c.Status(status) }
func (w fiberWriter) Write(b []byte) (int, error) { w.flush(); return w.c.Write(b) }
