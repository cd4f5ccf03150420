package httplimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// At most 64 entries and 8 KB of a header are read, from its end. An address that is
// read in part does not count.
func TestForwardedHeadersAreReadInPart(t *testing.T) {
	const before, proxy = "192.0.2.1, ", "10.0.0.2, "
	xff := httplimit.IPConfig{TrustedProxies: ourProxies}
	fwd := httplimit.IPConfig{TrustedProxies: ourProxies, Header: httplimit.Forwarded}
	for name, tc := range map[string]struct {
		cfg   httplimit.IPConfig
		lines []string
		want  string
	}{
		"64 entries":                  {xff, []string{before + strings.Repeat(proxy, 62) + "10.0.0.3"}, "ip:192.0.2.1"},
		"65 entries":                  {xff, []string{before + strings.Repeat(proxy, 63) + "10.0.0.3"}, "ip:10.0.0.2"},
		"64 entries, empty ones too":  {xff, []string{before + strings.Repeat(" ,", 62)}, "ip:192.0.2.1"},
		"65 entries, empty ones too":  {xff, []string{before + strings.Repeat(" ,", 63)}, "ip:10.0.0.1"},
		"64 lines":                    {xff, append([]string{"192.0.2.1"}, repeated("10.0.0.2", 63)...), "ip:192.0.2.1"},
		"65 lines":                    {xff, append([]string{"192.0.2.1"}, repeated("10.0.0.2", 64)...), "ip:10.0.0.2"},
		"empty lines":                 {xff, append([]string{"192.0.2.1"}, repeated("", 10_000)...), "ip:10.0.0.1"},
		"8 KB":                        {xff, []string{"192.0.2.1," + strings.Repeat(" ", 8192-10)}, "ip:192.0.2.1"},
		"more than 8 KB":              {xff, []string{"192.0.2.1," + strings.Repeat(" ", 8192)}, "ip:10.0.0.1"},
		"cut within the address":      {xff, []string{"192.0.2.1" + strings.Repeat(" ", 8192-3)}, "ip:10.0.0.1"},
		"a client's word before":      {xff, []string{strings.Repeat("x", 1<<20) + ", 192.0.2.1"}, "ip:192.0.2.1"},
		"a client's commas before":    {xff, []string{strings.Repeat(",", 900_000) + " 192.0.2.1, 10.0.0.2"}, "ip:192.0.2.1"},
		"a client's line before":      {xff, []string{strings.Repeat(",", 900_000), "192.0.2.1"}, "ip:192.0.2.1"},
		"Forwarded, a client's marks": {fwd, []string{strings.Repeat(`"\`, 500_000) + `,for=192.0.2.1`}, "ip:192.0.2.1"},
		"Forwarded, 64 elements":      {fwd, []string{"for=192.0.2.1" + strings.Repeat(", for=10.0.0.2", 63)}, "ip:192.0.2.1"},
		"Forwarded, 65 elements":      {fwd, []string{"for=192.0.2.1" + strings.Repeat(", for=10.0.0.2", 64)}, "ip:10.0.0.2"},
		"Forwarded, more than 8 KB":   {fwd, []string{"for=192.0.2.1;x=" + strings.Repeat("y", 8192)}, "ip:10.0.0.1"},
		"Forwarded, cut after a mark": {fwd, []string{`x="` + strings.Repeat("y", 8192-8) + `for=192.0.2.1`}, "ip:10.0.0.1"},
	} {
		r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{headerOf(tc.cfg): tc.lines}}
		if got := clientIP(t, tc.cfg)(r); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func headerOf(cfg httplimit.IPConfig) string {
	if cfg.Header == "" {
		return httplimit.XForwardedFor
	}
	return cfg.Header
}

func repeated(s string, times int) []string {
	all := make([]string, times)
	for i := range all {
		all[i] = s
	}
	return all
}
