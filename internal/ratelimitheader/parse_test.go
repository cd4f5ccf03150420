package ratelimitheader_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// The draft's own examples, and fields that the draft calls malformed.
// internal/test/e2e compares the parser with one of another project.
func TestParseRateLimit(t *testing.T) {
	for _, tc := range []struct {
		lines []string
		want  []ratelimitheader.ServiceLimit // nil: malformed
	}{
		{nil, []ratelimitheader.ServiceLimit{}},
		{[]string{`"default";r=50;t=30`}, []ratelimitheader.ServiceLimit{{Policy: "default", Remaining: 50, Window: 30 * time.Second}}},
		{[]string{`"default";r=999;pk=:dHJpYWwxMjEzMjM=:`}, []ratelimitheader.ServiceLimit{{Policy: "default", Remaining: 999, PartitionKey: "trial121323"}}},
		{[]string{`"a";r=1`, `"b";r=2;t=0;acme-x=?1`}, []ratelimitheader.ServiceLimit{{Policy: "a", Remaining: 1}, {Policy: "b", Remaining: 2}}},
		{[]string{`"a";r=1;pk=:cHM:`}, []ratelimitheader.ServiceLimit{{Policy: "a", Remaining: 1, PartitionKey: "ps"}}},
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
		got, err := ratelimitheader.ParseRateLimit(http.Header{"Ratelimit": tc.lines})
		if tc.want == nil {
			if !errors.Is(err, ratelimitheader.ErrMalformed) || got != nil {
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
	got, err := ratelimitheader.ParseRateLimitPolicy(http.Header{"Ratelimit-Policy": {
		`"burst";q=100;w=60,"daily";q=1000;w=86400`, `"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`,
	}})
	want := []ratelimitheader.QuotaPolicy{
		{Name: "burst", Quota: 100, Unit: "requests", Window: time.Minute},
		{Name: "daily", Quota: 1000, Unit: "requests", Window: 24 * time.Hour},
	}
	if len(got) != 3 || len(got[2].PartitionKey) != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
	want = append(want, ratelimitheader.QuotaPolicy{Name: "peruser", Quota: 65535, Unit: "content-bytes", Window: 10 * time.Second, PartitionKey: got[2].PartitionKey})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{`"a"`, `"a";q=1;w=0`, `"a";q=1;w=-1`, `"a";q=1;qu=requests`, `"a";q=1;pk=1`, `"a";w=1`} {
		if got, err := ratelimitheader.ParseRateLimitPolicy(http.Header{"Ratelimit-Policy": {bad}}); !errors.Is(err, ratelimitheader.ErrMalformed) {
			t.Errorf("%s: %+v, %v", bad, got, err)
		}
	}
}

// An overlong field is malformed, and is rejected before it costs memory.
func TestHugeFieldsAreMalformed(t *testing.T) {
	many := strings.Repeat(`"a";r=1, `, 64) + `"a";r=1`
	long := `"` + strings.Repeat("a", 8<<10) + `";r=1`
	for name, lines := range map[string][]string{"many items": {many}, "many lines": strings.Split(many, ", "), "a long name": {long}} {
		if got, err := ratelimitheader.ParseRateLimit(http.Header{"Ratelimit": lines}); !errors.Is(err, ratelimitheader.ErrMalformed) || got != nil {
			t.Errorf("%s: %d items, %v", name, len(got), err)
		}
	}
	if got, err := ratelimitheader.ParseRateLimit(http.Header{"Ratelimit": {strings.TrimSuffix(many, `, "a";r=1`)}}); err != nil || len(got) != 64 {
		t.Errorf("64 items: %d, %v", len(got), err)
	}
	huge := http.Header{"Ratelimit": {strings.Repeat(`"a";r=1,`, 1<<20)}}
	if n := testing.AllocsPerRun(10, func() { ratelimitheader.ParseRateLimit(huge) }); n > 0 {
		t.Errorf("8 MB cost %v allocations", n)
	}
}
