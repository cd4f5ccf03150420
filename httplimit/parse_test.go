package httplimit_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// The draft's own examples, and what it calls malformed. internal/e2e holds the
// parser against another.
func TestParseRateLimit(t *testing.T) {
	for _, tc := range []struct {
		lines []string
		want  []httplimit.ServiceLimit // nil: malformed
	}{
		{nil, []httplimit.ServiceLimit{}},
		{[]string{`"default";r=50;t=30`}, []httplimit.ServiceLimit{{Policy: "default", Remaining: 50, Window: 30 * time.Second}}},
		{[]string{`"default";r=999;pk=:dHJpYWwxMjEzMjM=:`}, []httplimit.ServiceLimit{{Policy: "default", Remaining: 999, PartitionKey: "trial121323"}}},
		{[]string{`"a";r=1`, `"b";r=2;t=0;acme-x=?1`}, []httplimit.ServiceLimit{{Policy: "a", Remaining: 1}, {Policy: "b", Remaining: 2}}},
		{[]string{`"a";r=1;pk=:cHM:`}, []httplimit.ServiceLimit{{Policy: "a", Remaining: 1, PartitionKey: "ps"}}},
		{[]string{`"a"`}, nil},
		{[]string{`a;r=1`}, nil},
		{[]string{`"a";r=-1`}, nil},
		{[]string{`"a";r=1.0`}, nil},
		{[]string{`"a";r="1"`}, nil},
		{[]string{`"a";r=1;t=x`}, nil},
		{[]string{`"a";r=1;pk="x"`}, nil},
		{[]string{`"a";r=1,`}, nil},
		{[]string{`"a";r=1 "b";r=1`}, nil},
		{[]string{`("a" "b");r=1`}, nil},
	} {
		got, err := httplimit.ParseRateLimit(http.Header{"Ratelimit": tc.lines})
		if tc.want == nil {
			if !errors.Is(err, httplimit.ErrMalformed) || got != nil {
				t.Errorf("%q: %+v, %v", tc.lines, got, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%q: %+v, %v, want %+v", tc.lines, got, err, tc.want)
		}
	}
}

func TestParseRateLimitPolicy(t *testing.T) {
	got, err := httplimit.ParseRateLimitPolicy(http.Header{"Ratelimit-Policy": {
		`"burst";q=100;w=60,"daily";q=1000;w=86400`, `"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`,
	}})
	want := []httplimit.QuotaPolicy{
		{Name: "burst", Quota: 100, Unit: "requests", Window: time.Minute},
		{Name: "daily", Quota: 1000, Unit: "requests", Window: 24 * time.Hour},
	}
	if len(got) != 3 || len(got[2].PartitionKey) != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
	want = append(want, httplimit.QuotaPolicy{Name: "peruser", Quota: 65535, Unit: "content-bytes", Window: 10 * time.Second, PartitionKey: got[2].PartitionKey})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{`"a"`, `"a";q=1;w=0`, `"a";q=1;w=-1`, `"a";q=1;qu=requests`, `"a";q=1;pk=1`, `"a";w=1`} {
		if got, err := httplimit.ParseRateLimitPolicy(http.Header{"Ratelimit-Policy": {bad}}); !errors.Is(err, httplimit.ErrMalformed) {
			t.Errorf("%s: %+v, %v", bad, got, err)
		}
	}
}
