// Package debug shows over HTTP what a hub knows: its limiters, and of a key what
// would become of a call and why, in a sentence that people on call understand.
//
// It shows keys, which are somebody's identity, and figures that tell how to get
// around a limit. It asks nobody who is there. So mount it where only you are: on
// a port of its own on the loopback, or behind your own authentication. It changes
// nothing, and asks Redis only when told to, with three messages a request. No page
// of another site can read it in the browser of somebody who may: it allows none by
// CORS, and answers only to names that such a page cannot have, which are addresses,
// localhost and those that Handler is told (else a name that is made to point to the
// loopback would do). The key is in the query, so it is in the access log of
// whatever stands before it; POST takes it in a form instead.
package debug

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// maxForm bounds a POST: a key of 64 KiB, each byte of it as "%xx", and the rest.
const maxForm = 3*64<<10 + 4<<10

// Handler shows a hub. Hosts are the names by which it is asked
// besides localhost and IP addresses: "limits.internal". A hub that is nil is a
// panic, here and not with the first question. Without a query it lists the limiters. The query says
//
//	limiter=name   one limiter; needed with key where the hub has several
//	key=text       what this process knows of a key
//	redis=1        besides, what Redis has of it now
//	format=json    JSON instead of text, as does "Accept: application/json"
//
// Answers are never cached. What cannot be shown is 400 (no such parameter, no
// such key), 404 (no such limiter), 405 (not GET, HEAD or POST), 415 (a POST that is
// no form), 421 (a host that is not one of these) or 503 (closed).
func Handler(hub *hybrid.Hub, hosts ...string) http.Handler {
	if hub == nil {
		panic("debug: Handler: hub (nil) is required")
	}
	h := handler{hub, map[string]bool{"localhost": true}}
	for _, name := range hosts {
		h.hosts[plain(name)] = true
	}
	return h
}

type handler struct {
	hub   *hybrid.Hub
	hosts map[string]bool
}

// welcome says whether a request's Host is a name that no other site can have.
// "Host: " alone is of no browser.
func (h handler) welcome(host string) bool {
	host = plain(host)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "" {
		return true
	}
	return h.hosts[host] || strings.HasSuffix(host, ".localhost")
}

// plain is a host without its port, as it is compared.
func plain(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// problem is an error with its status.
type problem struct {
	status int
	text   string
}

func (p problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) error {
	return problem{status, fmt.Sprintf(format, args...)}
}

// ServeHTTP answers one question.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'")
	asJSON := strings.Contains(r.Header.Get("Accept"), "application/json")
	var q query
	var err error
	if h.welcome(r.Host) {
		q, err = readQuery(w, r)
	} else {
		err = problemf(http.StatusMisdirectedRequest, "host (%q) must be localhost, an IP address, or one that debug.Handler is told", r.Host)
	}
	if err == nil {
		asJSON = asJSON && q.format == "" || q.format == "json"
		var v any
		if v, err = h.answer(r, q); err == nil {
			write(w, http.StatusOK, asJSON, v)
			return
		}
	}
	status := http.StatusInternalServerError
	var p problem
	switch {
	case errors.As(err, &p):
		status = p.status
	case errors.Is(err, hybridlimit.ErrClosed):
		status = http.StatusServiceUnavailable
	case errors.Is(err, hybridlimit.ErrEmptyKey), errors.Is(err, hybridlimit.ErrKeyTooLong), errors.Is(err, hybridlimit.ErrInvalid):
		status = http.StatusBadRequest
	}
	if status == http.StatusMethodNotAllowed {
		header.Set("Allow", "GET, HEAD, POST")
	}
	write(w, status, asJSON, failure{err.Error()})
}

type failure struct {
	Error string `json:"error"`
}

func (f failure) text(w io.Writer) { fmt.Fprintln(w, "error:", f.Error) }

// query is what is asked.
type query struct {
	limiter, key, format string
	byKey, redis         bool
}

func readQuery(w http.ResponseWriter, r *http.Request) (q query, err error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		const form = "application/x-www-form-urlencoded"
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != form {
			return q, problemf(http.StatusUnsupportedMediaType, "Content-Type (%q) must be %s", r.Header.Get("Content-Type"), form)
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	default:
		return q, problemf(http.StatusMethodNotAllowed, "%s changes nothing here: use GET", r.Method)
	}
	if err := r.ParseForm(); err != nil {
		return q, problemf(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	for name, values := range r.Form {
		if len(values) != 1 {
			return q, problemf(http.StatusBadRequest, "%q is there %d times", name, len(values))
		}
		v := values[0]
		switch name {
		case "limiter":
			q.limiter = v
		case "key":
			q.key, q.byKey = v, true
		case "redis":
			if v != "0" && v != "1" {
				return q, problemf(http.StatusBadRequest, "redis (%q) must be 0 or 1", v)
			}
			q.redis = v == "1"
		case "format":
			if q.format = v; v != "json" && v != "text" {
				return q, problemf(http.StatusBadRequest, "format (%q) must be json or text", v)
			}
		default:
			return q, problemf(http.StatusBadRequest, "%q is no parameter: there are limiter, key, redis and format", name)
		}
	}
	if q.redis && !q.byKey {
		return q, problemf(http.StatusBadRequest, "redis=1 needs a key")
	}
	return q, nil
}

// answer is what is shown.
func (h handler) answer(r *http.Request, q query) (any, error) {
	limiters := h.hub.Limiters()
	if q.limiter != "" {
		var named []*hybrid.Limiter
		for _, l := range limiters {
			if l.Name() == q.limiter {
				named = append(named, l)
			}
		}
		if limiters = named; len(named) == 0 {
			return nil, problemf(http.StatusNotFound, "the hub has no limiter %q", q.limiter)
		}
	}
	if !q.byKey {
		return listing(h.hub, limiters), nil
	}
	if len(limiters) != 1 {
		return nil, problemf(http.StatusBadRequest, "the hub has %d limiters: say which, by limiter=name", len(limiters))
	}
	var i hybrid.Inspection
	var err error
	if q.redis {
		i, err = limiters[0].InspectRedis(r.Context(), q.key)
	} else {
		i, err = limiters[0].Inspect(r.Context(), q.key)
	}
	return inspected(i), err
}

// texter writes itself for people.
type texter interface{ text(w io.Writer) }

func write(w http.ResponseWriter, status int, asJSON bool, v any) {
	if asJSON {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(v) // who asked has gone
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	v.(texter).text(w)
}
