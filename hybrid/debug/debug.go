// Package debug shows the state of a hub over HTTP. It lists the hub's limiters. For a key, it shows the decision on
// the next call and the reason for it, in one sentence for people on call.
//
// The handler shows keys, which may identify people, and figures that help to evade a limit. It has no authentication.
// Serve it on a separate port of the loopback address, or behind your own authentication.
//
// The handler changes nothing. It asks Redis only on request, with three messages per request.
//
// A page of another site cannot read the handler through the browser of a permitted user. The handler sends no CORS
// headers. It answers only requests for an IP address, localhost, or a host passed to Handler: another site could let
// its own name point to the loopback address.
//
// The key is part of the URL and so appears in the access logs of proxies. With POST, the key is in the form instead.
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
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// maxForm bounds the body of a POST: a key of 64 KiB with each byte as "%xx", and 4 KiB for the other parameters.
const maxForm = 3*64<<10 + 4<<10

// Handler returns a handler that shows a hub. hosts are the names for which it answers besides localhost and IP
// addresses, such as "limits.internal". Handler panics if hub is nil. Without parameters the answer lists the limiters.
// The parameters are
//
//	limiter=name   one limiter; required with key if the hub has several
//	key=text       the state of a key in this process
//	user=name      key= with the key of a user behind httplimit.User or grpclimit.User without a secret
//	ip=address     key= with the key of an address behind httplimit.PeerIP or grpclimit.Peer
//	redis=1        also the state of the key in Redis now; not of calls in flight and of leased rates
//	format=json    JSON instead of text, as with "Accept: application/json"
//
// Other keys of package clientkey have the text that "hybridlimit key" prints, such as key=apikey:... for an API key,
// which belongs into no URL. An answer for a key that the process does not know says so.
//
// Answers are never cached. The statuses of errors are
//
//	400  invalid parameter or key
//	404  no such limiter
//	405  the method is not GET, HEAD or POST
//	415  the body of a POST is not a form
//	421  the host is not one of the above
//	503  the hub is closed
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

// handler shows a hub.
type handler struct {
	hub   *hybrid.Hub
	hosts map[string]bool
}

// welcome reports whether a request's Host is a name that no other site can have. An
// empty Host is accepted, because no browser sends one.
func (h handler) welcome(host string) bool {
	host = plain(host)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "" {
		return true
	}
	return h.hosts[host] || strings.HasSuffix(host, ".localhost")
}

// plain returns the form of a host that is compared: without a port, and in lower case.
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

// problemf returns a problem.
func problemf(status int, format string, args ...any) error {
	return problem{status, fmt.Sprintf(format, args...)}
}

// ServeHTTP answers one request.
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
		err = problemf(http.StatusMisdirectedRequest, "host (%q) must be localhost, an IP address, or a host passed to debug.Handler", r.Host)
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

// failure is the body of an error.
type failure struct {
	Error string `json:"error"`
}

func (f failure) text(w io.Writer) { fmt.Fprintln(w, "error:", f.Error) }

// query is the parameters of a request.
type query struct {
	limiter, key, format string
	byKey, redis         bool
}

// readQuery reads and checks the parameters.
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
		return q, problemf(http.StatusMethodNotAllowed, "method %s is not allowed: use GET, HEAD or POST", r.Method)
	}
	if err := r.ParseForm(); err != nil {
		return q, problemf(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	for name, values := range r.Form {
		if len(values) != 1 {
			return q, problemf(http.StatusBadRequest, "parameter %q occurs %d times: it must occur once", name, len(values))
		}
		v := values[0]
		switch name {
		case "limiter":
			q.limiter = v
		case "key", "user", "ip":
			if q.byKey {
				return q, problemf(http.StatusBadRequest, "the parameters key, user and ip name one key: only one of them may occur")
			}
			if q.key, err = keyOf(name, v); err != nil {
				return q, err
			}
			q.byKey = true
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
			return q, problemf(http.StatusBadRequest, "unknown parameter %q: the parameters are limiter, key, user, ip, redis and format", name)
		}
	}
	if q.redis && !q.byKey {
		return q, problemf(http.StatusBadRequest, "redis=1 needs a key")
	}
	return q, nil
}

// keyOf returns the key that a parameter names.
func keyOf(parameter, value string) (string, error) {
	switch parameter {
	case "user":
		return clientkey.User("", value), nil
	case "ip":
		addr, err := netip.ParseAddr(value)
		if err != nil {
			return "", problemf(http.StatusBadRequest, "ip (%q) must be an IP address without a port", value)
		}
		return clientkey.IP(addr), nil
	}
	return value, nil
}

// answer returns the content of the answer.
func (h handler) answer(r *http.Request, q query) (any, error) {
	limiters := shownOf(h.hub)
	if q.limiter != "" {
		limiters = slices.DeleteFunc(limiters, func(l shown) bool { return l.Name() != q.limiter })
		if len(limiters) == 0 {
			return nil, problemf(http.StatusNotFound, "the hub has no limiter %q", q.limiter)
		}
	}
	if !q.byKey {
		return listing(h.hub, limiters), nil
	}
	if len(limiters) != 1 {
		return nil, problemf(http.StatusBadRequest, "the hub has %d limiters: select one with limiter=name", len(limiters))
	}
	if !q.redis {
		return limiters[0].look(r.Context(), q.key)
	}
	if l, ok := limiters[0].(redisShown); ok {
		return l.lookRedis(r.Context(), q.key)
	}
	return nil, problemf(http.StatusBadRequest, "redis (\"1\") must be absent for the limiter %q: the command hybridlimit shows its state in Redis", limiters[0].Name())
}

// texter is the content of an answer. It can be written as text.
type texter interface{ text(w io.Writer) }

// write writes an answer as text or JSON.
func write(w http.ResponseWriter, status int, asJSON bool, v any) {
	if asJSON {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(v) // an error means that the client has gone
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	v.(texter).text(w)
}
