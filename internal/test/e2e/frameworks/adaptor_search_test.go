//go:build search

package frameworks

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/valyala/fasthttp"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/internal/test/e2e/frameworks/fiberlimit"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// TestAdaptorChangesLines shows a reason for an adapter of our own: fiber's adaptor
// overwrites the lines of a repeated request field with the last one.
func TestAdaptorChangesLines(t *testing.T) {
	mw := limit(t, limittest.AllowAll(), httplimit.Everyone())
	for want, handler := range map[string]fiber.Handler{"b,b": adaptor.HTTPMiddleware(mw), "a,b": fiberlimit.Fiber(mw)} {
		app := fiber.New()
		lines := ""
		app.Get("/", handler, func(c fiber.Ctx) error {
			lines = strings.Join(c.GetReqHeaders()["X-Test"], ",")
			return nil
		})
		var call fasthttp.RequestCtx
		call.Request.SetRequestURI("/")
		call.Request.Header.Add("X-Test", "a")
		call.Request.Header.Add("X-Test", "b")
		app.Handler()(&call)
		if lines != want {
			t.Errorf("%q, want %q", lines, want)
		}
	}
}

// TestAdaptorReplacesPanics shows another reason: the recovery does not receive the
// value of a panic.
func TestAdaptorReplacesPanics(t *testing.T) {
	mw := limit(t, limittest.AllowAll(), func(*http.Request) string { panic("key") })
	for name, c := range map[string]struct {
		handler fiber.Handler
		kept    bool
	}{
		"adaptor": {adaptor.HTTPMiddleware(mw), false},
		"direct":  {fiberlimit.Fiber(mw), true},
	} {
		app := fiber.New()
		var got any
		app.Use(func(c fiber.Ctx) error {
			defer func() { got = recover() }()
			return c.Next()
		})
		app.Get("/", c.handler, func(fiber.Ctx) error { return nil })
		var call fasthttp.RequestCtx
		call.Init(&fasthttp.Request{}, nil, discard{})
		call.Request.SetRequestURI("/")
		app.Handler()(&call)
		if got == nil || (got == "key") != c.kept {
			t.Errorf("%s: recovered %v", name, got)
		}
	}
}

// discard is a log without lines.
type discard struct{}

func (discard) Printf(string, ...any) {}

// BenchmarkFiber measures a fiber handler without a limit, behind the adapter of
// docs/http.md, and behind fiber's adaptor.
func BenchmarkFiber(b *testing.B) {
	limiter, err := local.New(hybridlimit.PerSecond(1_000_000_000), local.Config{Name: "api"})
	if err != nil {
		b.Fatal(err)
	}
	mw, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: limiter, Key: httplimit.PeerIP()})
	if err != nil {
		b.Fatal(err)
	}
	none := func(c fiber.Ctx) error { return c.Next() }
	for _, c := range []struct {
		name    string
		handler fiber.Handler
	}{
		{"none", none},
		{"direct", fiberlimit.Fiber(mw)},
		{"adaptor", adaptor.HTTPMiddleware(mw)},
	} {
		b.Run(c.name, func(b *testing.B) {
			app := fiber.New()
			app.Get("/", c.handler, func(c fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })
			handler := app.Handler()
			var call fasthttp.RequestCtx
			call.Request.SetRequestURI("/")
			call.Request.Header.Set("Accept", "*/*")
			b.ReportAllocs()
			for b.Loop() {
				call.Response.Reset()
				call.ResetUserValues()
				handler(&call)
			}
		})
	}
}
