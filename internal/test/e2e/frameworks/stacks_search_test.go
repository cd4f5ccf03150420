//go:build search

package frameworks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	fiber2 "github.com/gofiber/fiber/v2"
	recover2 "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/gofiber/fiber/v3"
	recoverer "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"

	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/internal/test/e2e/frameworks/echo5limit"
	"github.com/hybridlimit/hybridlimit/internal/test/e2e/frameworks/echolimit"
	"github.com/hybridlimit/hybridlimit/internal/test/e2e/frameworks/fiber2limit"
	"github.com/hybridlimit/hybridlimit/internal/test/e2e/frameworks/fiberlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/e2e/frameworks/ginlimit"
)

// site is the service that each framework serves. In all of them the middleware
// stand in this order: recovery, authentication, the limits, one that notes its
// calls.
//
//	GET  /users/:id  "user ID", the lines of X-Test, and a field X-Handler
//	POST /body       the body of the request
//	GET  /panic      panics with "boom"
//	GET  /stream     "one", and "two" after release
//	GET  /hijack     takes the connection over and writes "hijacked"
type site struct {
	limits  []func(http.Handler) http.Handler // the outer one first
	release chan struct{}

	mu    sync.Mutex
	later int   // calls of the middleware after the limits
	ran   int   // calls of handlers
	panik []any // values that reached the recovery
}

// calls returns the number of calls behind the limits.
func (s *site) calls() (later, ran int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.later, s.ran
}

func (s *site) noteLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later++
}

func (s *site) noteRun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran++
}

func (s *site) notePanic(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.panik = append(s.panik, v)
}

// panics returns the values that reached the recovery.
func (s *site) panics() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.panik...)
}

// userHeader stands for a checked token. The authentication of each framework
// stores its value in the framework's context.
const userHeader = "X-User"

// stack is a framework with its adapter.
type stack struct {
	name  string
	start func(t *testing.T, s *site) (url string)
	// user and id return the user of the authentication and the route parameter.
	user, id func(r *http.Request) string
	// route is the route of /users/1, as in Request.Pattern.
	route string
	// limitsUnmatched is true if requests without a route pass the limits.
	limitsUnmatched bool
	// hijacks is true if the framework's handlers can take a connection over.
	hijacks bool
}

var stacks = []stack{
	{
		name:            "gin",
		start:           startGin,
		user:            func(r *http.Request) string { return httplimit.Framework[*gin.Context](r).GetString("user") },
		id:              func(r *http.Request) string { return httplimit.Framework[*gin.Context](r).Param("id") },
		route:           "/users/:id",
		limitsUnmatched: true,
		hijacks:         true,
	},
	{
		name:  "echo v4",
		start: startEcho,
		user: func(r *http.Request) string {
			user, _ := httplimit.Framework[echo.Context](r).Get("user").(string)
			return user
		},
		id:              func(r *http.Request) string { return httplimit.Framework[echo.Context](r).Param("id") },
		route:           "/users/:id",
		limitsUnmatched: true,
		hijacks:         true,
	},
	{
		name:  "echo v5",
		start: startEcho5,
		user: func(r *http.Request) string {
			user, _ := httplimit.Framework[*echo5.Context](r).Get("user").(string)
			return user
		},
		id:              func(r *http.Request) string { return httplimit.Framework[*echo5.Context](r).Param("id") },
		route:           "/users/:id",
		limitsUnmatched: true,
		hijacks:         true,
	},
	{
		name:    "chi",
		start:   startChi,
		user:    func(r *http.Request) string { user, _ := r.Context().Value(userKey{}).(string); return user },
		id:      func(r *http.Request) string { return chi.URLParam(r, "id") },
		route:   "/users/{id}",
		hijacks: true,
	},
	{
		name:  "fiber v2",
		start: startFiber2,
		user: func(r *http.Request) string {
			user, _ := httplimit.Framework[*fiber2.Ctx](r).Locals("user").(string)
			return user
		},
		id:    func(r *http.Request) string { return strings.Clone(httplimit.Framework[*fiber2.Ctx](r).Params("id")) },
		route: "/users/:id",
	},
	{
		name:  "fiber v3",
		start: startFiber,
		user: func(r *http.Request) string {
			user, _ := httplimit.Framework[fiber.Ctx](r).Locals("user").(string)
			return user
		},
		id:    func(r *http.Request) string { return strings.Clone(httplimit.Framework[fiber.Ctx](r).Params("id")) },
		route: "/users/:id",
	},
}

// serve starts a server of net/http.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// stream writes "one", and "two" after release.
func (s *site) stream(w http.ResponseWriter) error {
	io.WriteString(w, "one")
	if err := http.NewResponseController(w).Flush(); err != nil {
		return err
	}
	<-s.release
	_, err := io.WriteString(w, "two")
	return err
}

// hijack takes the connection over.
func hijack(w http.ResponseWriter) error {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhijacked")
	return err
}

// user returns the text of GET /users/:id.
func user(id string, lines []string) string {
	return fmt.Sprintf("user %s %s", id, strings.Join(lines, ","))
}

func startGin(t *testing.T, s *site) string {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, v any) {
		s.notePanic(v)
		c.AbortWithStatus(http.StatusInternalServerError)
	}))
	router.Use(func(c *gin.Context) { c.Set("user", c.GetHeader(userHeader)) })
	for _, mw := range s.limits {
		router.Use(ginlimit.Gin(mw))
	}
	router.Use(func(*gin.Context) { s.noteLater() })
	router.GET("/users/:id", func(c *gin.Context) {
		s.noteRun()
		c.Header("X-Handler", "yes")
		c.String(http.StatusOK, user(c.Param("id"), c.Request.Header.Values("X-Test")))
	})
	router.POST("/body", func(c *gin.Context) {
		body, _ := c.GetRawData()
		c.String(http.StatusOK, string(body))
	})
	router.GET("/panic", func(*gin.Context) { panic("boom") })
	router.GET("/stream", func(c *gin.Context) {
		if err := s.stream(c.Writer); err != nil {
			t.Error(err)
		}
	})
	router.GET("/hijack", func(c *gin.Context) {
		if err := hijack(c.Writer); err != nil {
			t.Error(err)
		}
	})
	return serve(t, router)
}

func startEcho(t *testing.T, s *site) string {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			defer func() {
				if v := recover(); v != nil {
					s.notePanic(v)
					c.NoContent(http.StatusInternalServerError)
				}
			}()
			return next(c)
		}
	})
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("user", c.Request().Header.Get(userHeader))
			return next(c)
		}
	})
	for _, mw := range s.limits {
		e.Use(echolimit.Echo(mw))
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			s.noteLater()
			return next(c)
		}
	})
	e.GET("/users/:id", func(c echo.Context) error {
		s.noteRun()
		c.Response().Header().Set("X-Handler", "yes")
		return c.String(http.StatusOK, user(c.Param("id"), c.Request().Header.Values("X-Test")))
	})
	e.POST("/body", func(c echo.Context) error {
		body, _ := io.ReadAll(c.Request().Body)
		return c.Blob(http.StatusOK, "text/plain", body)
	})
	e.GET("/panic", func(echo.Context) error { panic("boom") })
	e.GET("/stream", func(c echo.Context) error { return s.stream(c.Response()) })
	e.GET("/hijack", func(c echo.Context) error { return hijack(c.Response()) })
	return serve(t, e)
}

func startEcho5(t *testing.T, s *site) string {
	e := echo5.New()
	e.Use(func(next echo5.HandlerFunc) echo5.HandlerFunc {
		return func(c *echo5.Context) error {
			defer func() {
				if v := recover(); v != nil {
					s.notePanic(v)
					c.NoContent(http.StatusInternalServerError)
				}
			}()
			return next(c)
		}
	})
	e.Use(func(next echo5.HandlerFunc) echo5.HandlerFunc {
		return func(c *echo5.Context) error {
			c.Set("user", c.Request().Header.Get(userHeader))
			return next(c)
		}
	})
	for _, mw := range s.limits {
		e.Use(echo5limit.Echo(mw))
	}
	e.Use(func(next echo5.HandlerFunc) echo5.HandlerFunc {
		return func(c *echo5.Context) error {
			s.noteLater()
			return next(c)
		}
	})
	e.GET("/users/:id", func(c *echo5.Context) error {
		s.noteRun()
		c.Response().Header().Set("X-Handler", "yes")
		return c.String(http.StatusOK, user(c.Param("id"), c.Request().Header.Values("X-Test")))
	})
	e.POST("/body", func(c *echo5.Context) error {
		body, _ := io.ReadAll(c.Request().Body)
		return c.Blob(http.StatusOK, "text/plain", body)
	})
	e.GET("/panic", func(*echo5.Context) error { panic("boom") })
	e.GET("/stream", func(c *echo5.Context) error { return s.stream(c.Response()) })
	e.GET("/hijack", func(c *echo5.Context) error { return hijack(c.Response()) })
	return serve(t, e)
}

type userKey struct{}

func startChi(t *testing.T, s *site) string {
	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if v := recover(); v != nil {
					s.notePanic(v)
					w.WriteHeader(http.StatusInternalServerError)
				}
			}()
			next.ServeHTTP(w, r)
		})
	})
	router.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get(userHeader))))
		})
	})
	router.Group(func(r chi.Router) { // as in docs/http.md: not router.Use
		for _, mw := range s.limits {
			r.Use(mw)
		}
		r.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.noteLater()
				next.ServeHTTP(w, r)
			})
		})
		r.Get("/users/{id}", func(w http.ResponseWriter, r *http.Request) {
			s.noteRun()
			w.Header().Set("X-Handler", "yes")
			io.WriteString(w, user(chi.URLParam(r, "id"), r.Header.Values("X-Test")))
		})
		r.Post("/body", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
		r.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("boom") })
		r.Get("/stream", func(w http.ResponseWriter, _ *http.Request) {
			if err := s.stream(w); err != nil {
				t.Error(err)
			}
		})
		r.Get("/hijack", func(w http.ResponseWriter, _ *http.Request) {
			if err := hijack(w); err != nil {
				t.Error(err)
			}
		})
	})
	return serve(t, router)
}

// listen returns a free address.
func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func startFiber2(t *testing.T, s *site) string {
	app := fiber2.New(fiber2.Config{DisableStartupMessage: true})
	app.Use(recover2.New(recover2.Config{EnableStackTrace: true, StackTraceHandler: func(_ *fiber2.Ctx, v any) { s.notePanic(v) }}))
	app.Use(func(c *fiber2.Ctx) error {
		c.Locals("user", strings.Clone(c.Get(userHeader)))
		return c.Next()
	})
	// The limits stand on each route, as in docs/http.md.
	with := func(h fiber2.Handler) (chain []fiber2.Handler) {
		for _, mw := range s.limits {
			chain = append(chain, fiber2limit.Fiber(mw))
		}
		return append(chain, func(c *fiber2.Ctx) error { s.noteLater(); return c.Next() }, h)
	}
	app.Get("/users/:id", with(func(c *fiber2.Ctx) error {
		s.noteRun()
		c.Set("X-Handler", "yes")
		return c.SendString(user(c.Params("id"), c.GetReqHeaders()["X-Test"]))
	})...)
	app.Post("/body", with(func(c *fiber2.Ctx) error { return c.Send(c.Body()) })...)
	app.Get("/panic", with(func(*fiber2.Ctx) error { panic("boom") })...)
	app.Get("/stream", with(func(c *fiber2.Ctx) error {
		c.Context().SetBodyStreamWriter(s.streamBody)
		return nil
	})...)
	ln := listen(t)
	go app.Listener(ln)
	t.Cleanup(func() { app.Shutdown() })
	return "http://" + ln.Addr().String()
}

// streamBody is stream for fiber.
func (s *site) streamBody(w *bufio.Writer) {
	w.WriteString("one")
	w.Flush()
	<-s.release
	w.WriteString("two")
}

func startFiber(t *testing.T, s *site) string {
	app := fiber.New()
	app.Use(recoverer.New(recoverer.Config{EnableStackTrace: true, StackTraceHandler: func(_ fiber.Ctx, v any) { s.notePanic(v) }}))
	app.Use(func(c fiber.Ctx) error {
		c.Locals("user", strings.Clone(c.Get(userHeader)))
		return c.Next()
	})
	// The limits stand on each route, as in docs/http.md.
	with := func(h fiber.Handler) (first any, rest []any) {
		var chain []any
		for _, mw := range s.limits {
			chain = append(chain, fiberlimit.Fiber(mw))
		}
		chain = append(chain, func(c fiber.Ctx) error { s.noteLater(); return c.Next() }, h)
		return chain[0], chain[1:]
	}
	add := func(method func(path string, handler any, handlers ...any) fiber.Router, path string, h fiber.Handler) {
		first, rest := with(h)
		method(path, first, rest...)
	}
	add(app.Get, "/users/:id", func(c fiber.Ctx) error {
		s.noteRun()
		c.Set("X-Handler", "yes")
		return c.SendString(user(c.Params("id"), c.GetReqHeaders()["X-Test"]))
	})
	add(app.Post, "/body", func(c fiber.Ctx) error { return c.Send(c.Body()) })
	add(app.Get, "/panic", func(fiber.Ctx) error { panic("boom") })
	add(app.Get, "/stream", func(c fiber.Ctx) error { return c.SendStreamWriter(s.streamBody) })
	ln := listen(t)
	go app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true})
	t.Cleanup(func() { app.Shutdown() })
	return "http://" + ln.Addr().String()
}
