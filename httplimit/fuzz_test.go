package httplimit

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// The key is that of the address that a trusted proxy appends, with any text of the
// client before it.
func FuzzClientPrefix(f *testing.F) {
	f.Add("1.1.1.1", "for=\"", false)
	f.Add(`for="[2001:db8::1]:80";by="\"`, "x", true)
	f.Add(`"\`, `,`, true)
	f.Add(`;host="a\\`, `for=10.0.0.1`, true)
	f.Add(strings.Repeat(",", 64), strings.Repeat(" ,", 64), false)
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	x, err := ClientIP(IPConfig{TrustedProxies: trusted})
	if err != nil {
		f.Fatal(err)
	}
	fw, err := ClientIP(IPConfig{TrustedProxies: trusted, Header: Forwarded})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b string, second bool) {
		for _, tc := range []struct {
			key      KeyFunc
			name     string
			appended []string
		}{
			{x, XForwardedFor, []string{"192.0.2.7", "192.0.2.7, 10.1.2.3", "192.0.2.7:4711", "192.0.2.7,10.3.3.3,,10.2.2.2"}},
			{fw, Forwarded, []string{"for=192.0.2.7", `for="192.0.2.7:4711"`, `proto=http;for=192.0.2.7;by="[fd00::1]:80"`, `for=192.0.2.7, for=10.2.2.2`, `for=192.0.2.7;host="a\",for=6.6.6.6"`}},
		} {
			for _, p := range tc.appended {
				lines := []string{a, b + ", " + p}
				if second {
					lines = []string{a + ", " + b, p}
				}
				r := &http.Request{RemoteAddr: "10.0.0.1:99", Header: http.Header{tc.name: lines}}
				if got := tc.key(r); got != "ip:192.0.2.7" {
					t.Fatalf("%q: %q", lines, got)
				}
			}
		}
	})
}

// With any fields of a server, no request waits for longer than its bounds, no time
// is negative, and memory is bounded.
func FuzzTransportHears(f *testing.F) {
	f.Add(429, "5", "", `"a";r=1;t=5`, `"a";q=10;w=60`, `"b";r=0`, "0")
	f.Add(200, "", "", `"a";r=0;t=999999999999999`, `"a";q=1;w=999999999999999`, "", "")
	f.Add(200, "", "", `"a";r=1;t=999999999999999`, `"a";q=999999999999999;w=999999999999999`, "", "99999999999999999999")
	f.Add(429, "-9223372036854775808", "", ``, ``, ``, "")
	f.Add(503, "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", ``, ``, ``, "-1")
	f.Fuzz(func(t *testing.T, status int, retry, date, limit, policy, more, age string) {
		tr, err := NewTransport(TransportConfig{MaxBlock: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s := tr.sites.Of("h")
		start := time.Now()
		now := start
		for range 5 {
			mine := s.slot(now, 0.2, 30*time.Second)
			if mine.wait < 0 {
				t.Fatalf("wait %v", mine.wait)
			}
			h := http.Header{}
			for k, v := range map[string]string{"Retry-After": retry, "Date": date, "Ratelimit": limit, "Ratelimit-Policy": policy, "Age": age} {
				if v != "" {
					h[k] = []string{v}
				}
			}
			if more != "" {
				h["Ratelimit"] = append(h["Ratelimit"], more)
			}
			a, _ := tr.observe(s, mine.seq, &http.Response{StatusCode: status, Header: h})
			if a.after < 0 {
				t.Fatalf("after %v", a.after)
			}
			if b := s.blocked(now); b > time.Minute+time.Since(start) {
				t.Fatalf("blocked %v", b)
			}
			if len(s.windows) > maxWindows {
				t.Fatalf("%d windows", len(s.windows))
			}
			for _, w := range s.windows {
				if w.left < 0 || w.each < 0 {
					t.Fatalf("%+v", w)
				}
			}
			now = now.Add(time.Second)
		}
	})
}
