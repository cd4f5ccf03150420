package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

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
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	return false
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
