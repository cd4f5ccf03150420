package xds_test

import (
	"fmt"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
	"github.com/hybridlimit/hybridlimit/rls/internal/xds"
)

// resources returns the resources of a push.
func resources(t *testing.T, all ...proto.Message) (list []*anypb.Any) {
	t.Helper()
	for _, one := range all {
		a, err := anypb.New(one)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

// configs reads configurations in JSON.
func configs(t *testing.T, texts ...string) (list []proto.Message) {
	t.Helper()
	for _, text := range texts {
		c := &config.RateLimitConfig{}
		if err := protojson.Unmarshal([]byte(text), c); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

// TestRulesAreThoseOfFiles compares a push with a file of the same content.
func TestRulesAreThoseOfFiles(t *testing.T) {
	pushed, err := xds.Rules(resources(t, configs(t, `{"name": "a", "domain": "d", "descriptors": [
		{"key": "a", "value": "yes", "rateLimit": {"unit": "DAY", "requestsPerUnit": 3, "name": "n", "replaces": [{"name": "m"}]}, "shadowMode": true, "quotaMode": true, "detailedMetric": true,
		 "metadata": {"s": "yes", "n": 1.5, "b": true, "o": {"l": [null, "x", {}]}},
		 "descriptors": [{"key": "b", "value": "v*w", "rateLimit": {"unit": "MONTH", "requestsPerUnit": 4294967295}}]},
		{"key": "free", "rateLimit": {"unlimited": true}},
		{"key": "zero", "rateLimit": {"unit": "SECOND"}},
		{"key": "none"}]}`)...), false)
	if err != nil {
		t.Fatal(err)
	}
	read, err := rules.Parse([]rules.File{{Name: "a", Data: []byte(`
domain: d
descriptors:
- key: a
  value: "yes"
  rate_limit: {unit: day, requests_per_unit: 3, name: n, replaces: [{name: m}]}
  shadow_mode: true
  quota_mode: true
  detailed_metric: true
  metadata: {s: "yes", n: 1.5, b: true, o: {l: [~, x, {}]}}
  descriptors:
  - {key: b, value: "v*w", rate_limit: {unit: month, requests_per_unit: 4294967295}}
- {key: free, rate_limit: {unlimited: true}}
- {key: zero, rate_limit: {unit: second}}
- {key: none}
`)}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(pushed.Rules()) != len(read.Rules()) {
		t.Fatalf("%d rules, want %d", len(pushed.Rules()), len(read.Rules()))
	}
	for i, want := range read.Rules() {
		got := pushed.Rules()[i]
		if !proto.Equal(got.Metadata, want.Metadata) {
			t.Errorf("%s: metadata %v, want %v", want.Path, got.Metadata, want.Metadata)
		}
		a, b := *got, *want
		a.Line, b.Line, a.Metadata, b.Metadata = 0, 0, nil, nil
		if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
			t.Errorf("%+v, want %+v", a, b)
		}
	}
	if w := pushed.Warnings(); len(w) != 1 || !strings.Contains(w[0].Error(), "d.zero.rate_limit.requests_per_unit: is missing and so 0: every call is denied") {
		t.Errorf("warnings: %v", w)
	}
	entry := &ratelimit.RateLimitDescriptor_Entry{Key: "free", Value: "x"}
	if m, _ := pushed.Find("d", &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{entry}}); m.Rule == nil || !m.Rule.Unlimited {
		t.Errorf("%+v", m)
	}
	for range 3 { // two resources of one domain
		_, err = xds.Rules(resources(t, configs(t, `{"domain": "d", "descriptors": [{"key": "a"}]}`, `{"name": "second", "domain": "d"}`)...), true)
		if err != nil {
			t.Error(err)
		}
	}
	if none, err := xds.Rules(nil, false); err != nil || len(none.Domains()) > 0 {
		t.Errorf("an empty push: %v, %v", none, err)
	}
}

// nested returns a configuration with descriptors inside each other.
func nested(depth int) proto.Message {
	c := &config.RateLimitConfig{Domain: "d"}
	at := &c.Descriptors
	for range depth {
		d := &config.RateLimitDescriptor{Key: "k"}
		*at, at = []*config.RateLimitDescriptor{d}, &d.Descriptors
	}
	return c
}

// TestNonsense is refused: no push may use up memory, or take rules away that are good.
func TestNonsense(t *testing.T) {
	many := &config.RateLimitConfig{Domain: "d"}
	for range rules.MaxDescriptors + 1 {
		many.Descriptors = append(many.Descriptors, &config.RateLimitDescriptor{})
	}
	deep := &structpb.Value{}
	for range 50 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for name, c := range map[string]struct {
		push []*anypb.Any
		want string
	}{
		"bytes":        {[]*anypb.Any{{TypeUrl: xds.Type, Value: []byte{0xff, 0xff}}}, "resource 1 of 1: proto"},
		"another type": {resources(t, &structpb.Struct{}), "mismatched message type"},
		"no domain":    {resources(t, configs(t, `{"name": "r"}`)...), "r: domain: must not be empty"},
		"no key":       {resources(t, configs(t, `{"domain": "d", "descriptors": [{}]}`)...), "resource 1: d.descriptors[0]: must have a key that is not empty"},
		"no unit":      {resources(t, configs(t, `{"domain": "d", "descriptors": [{"key": "a", "rateLimit": {"requestsPerUnit": 1}}]}`)...), `d.a.rate_limit.unit: ("unknown") must be second`},
		"odd unit":     {resources(t, configs(t, `{"domain": "d", "descriptors": [{"key": "a", "rateLimit": {"unit": 77}}]}`)...), `d.a.rate_limit.unit: ("77") must be second`},
		"twice":        {resources(t, configs(t, `{"domain": "d"}`, `{"domain": "d"}`)...), `resource 2: domain: ("d") is the domain of another file too`},
		"depth":        {resources(t, nested(500)), "descriptors around it"},
		"number":       {resources(t, many), "the push has more than 100000 descriptors"},
		"deep metadata": {resources(t, &config.RateLimitConfig{Domain: "d", Descriptors: []*config.RateLimitDescriptor{
			{Key: "a", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"a": deep}}},
		}}), "objects and lists inside each other"},
	} {
		if _, err := xds.Rules(c.push, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
