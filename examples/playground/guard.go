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

// patience is how long a page may take to read what it is sent, or to send what
// it wants.
const patience = 10 * time.Second

var errOtherSite = errors.New("playground: pages of other sites are refused")

// guarded refuses what another site's page has a browser ask for: orders, and
// what costs something to answer. The name by which it was asked must be one of
// this machine, or another site's name could lead here and make its pages count
// as ours (DNS rebinding). host is the one of -addr.
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
			// Fails for a writer without a connection, which then has nobody to
			// wait for.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.patience))
		}
		safe.ServeHTTP(w, r)
	})
}

// named says whether a Host names this machine whoever asks: a name that
// somebody's DNS answers for does not, but for the one of -addr.
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

// ownSite says whether it is our page that asks, the address bar, or no browser
// at all.
func ownSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	return false
}

// secured allows the page nothing but its own files.
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
