package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// answers returns a handler that replies with the result of do.
func answers(do func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		v, err := do(r)
		switch {
		case errors.Is(err, errNotFound):
			refuse(w, http.StatusNotFound, err)
		case errors.Is(err, hybridlimit.ErrInvalid), errors.Is(err, errUnreadable):
			refuse(w, http.StatusBadRequest, err)
		case errors.Is(err, errEnded):
			refuse(w, http.StatusServiceUnavailable, err)
		case err != nil:
			refuse(w, http.StatusConflict, err)
		default:
			write(w, http.StatusOK, v)
		}
	}
}

// order returns a handler that executes an order without a body.
func order(do func(r *http.Request) error) http.HandlerFunc {
	return answers(func(r *http.Request) (any, error) { return done, do(r) })
}

// errNotFound begins the error of a path that names nothing.
var errNotFound = errors.New("playground")

// maxBody is the largest body of an order in bytes, far more than any needs.
const maxBody = 4 << 10

var errUnreadable = errors.New("the request cannot be read")

// done is the reply to an order that has no other.
var done = struct{}{}

// with reads the order in the body of a request and executes it.
func with[Q any](r *http.Request, do func(Q) error) error {
	var q Q
	body, err := content(r)
	if err == nil {
		err = decode(body, &q)
	}
	if err == nil {
		err = do(q)
	}
	return err
}

func content(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("playground: %w: %w", errUnreadable, err)
	}
	return body, nil
}

// decode reads one JSON object, with nothing after it. Unknown fields are an error.
func decode(body []byte, q any) error {
	from := json.NewDecoder(bytes.NewReader(body))
	from.DisallowUnknownFields()
	err := from.Decode(q)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return wrongType(wrong)
	case err != nil:
		return fmt.Errorf("playground: %w: %w", errUnreadable, err)
	}
	if _, err := from.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("playground: %w: something follows its first value", errUnreadable)
	}
	return nil
}

// wrongType converts an error of encoding/json about Go types to one about the field.
func wrongType(e *json.UnmarshalTypeError) error {
	literal, number := strings.CutPrefix(e.Value, "number ")
	integer := e.Type.Kind() >= reflect.Int && e.Type.Kind() <= reflect.Int64
	if e.Field == "" || !number && !integer {
		return fmt.Errorf("playground: %w: %s is of type %s", errUnreadable, cmp.Or(e.Field, "it"), e.Value)
	}
	switch {
	case integer && !number:
		return fmt.Errorf("playground: %w: %s must be a whole number, not of type %s", errUnreadable, e.Field, e.Value)
	case integer && strings.ContainsAny(literal, ".eE"):
		return invalid(e.Field, json.Number(literal), "must be a whole number")
	}
	return invalid(e.Field, json.Number(literal), "is too large")
}

// invalid returns the error of an order with one wrong field.
func invalid(field string, value any, problem string) error {
	var bad adapter.Violations
	bad.Add(field, value, problem)
	return bad.Err("playground")
}

func refuse(w http.ResponseWriter, status int, err error) {
	write(w, status, map[string]string{"error": err.Error()})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

// patience is the time that a page has to read a message, or to send its request.
const patience = 10 * time.Second

var errOtherSite = errors.New("playground: pages of other sites are refused")

// guarded refuses requests that pages of other sites make a browser send: orders, and requests with an expensive
// answer. The Host must name this machine. Otherwise another site could point its own name here, and its pages would
// count as ours (DNS rebinding). host is the host of -addr.
func (p *playground) guarded(host string, next http.Handler) http.Handler {
	orders := http.NewCrossOriginProtection()
	orders.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, errOtherSite)
	}))
	safe := orders.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !named(r.Host, host) {
			refuse(w, http.StatusForbidden, fmt.Errorf("playground: host (%q) must be localhost, an IP address, or the host of -addr", r.Host))
			return
		}
		if (r.URL.Path == "/feed" || strings.HasPrefix(r.URL.Path, "/try/")) && !ownSite(r) {
			refuse(w, http.StatusForbidden, errOtherSite)
			return
		}
		if r.ContentLength != 0 {
			// Fails only for a writer without a connection, and then there is no wait.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.patience))
		}
		safe.ServeHTTP(w, r)
	})
}

// named reports whether a Host certainly names this machine. A name that is resolved by DNS does not, except the host
// of -addr.
func named(asked, host string) bool {
	name, _, err := net.SplitHostPort(asked)
	if err != nil { // without a port
		name = strings.TrimSuffix(strings.TrimPrefix(asked, "["), "]")
	}
	if name == "" {
		return false
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return strings.EqualFold(name, "localhost") || strings.EqualFold(name, host)
}

// ownSite reports whether the request comes from our page, from the address bar, or from a program that is not a
// browser.
func ownSite(r *http.Request) bool {
	return slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site"))
}

// secured forbids the page to load anything except its own files.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
