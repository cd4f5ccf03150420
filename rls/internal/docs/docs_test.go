package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rate_limit_quota/v3" // for its type
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"        // for its type
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"           // for its type
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // for its type
	_ "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"              // for its type
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hybridlimit/hybridlimit/rls"
)

// fragments returns the YAML blocks of a page, by the heading above them.
func fragments(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	heading, block, inside := "", "", false
	for line := range strings.Lines(string(text)) {
		switch {
		case inside && strings.HasPrefix(line, "```"):
			all[heading], inside = append(all[heading], block), false
		case inside:
			block += line
		case strings.HasPrefix(line, "```yaml"):
			block, inside = "", true
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return all
}

// documents returns the YAML documents of a block.
func documents(text string) (all []map[string]any, err error) {
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var one map[string]any
		if err := dec.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// read makes a message of a value of YAML. An unknown field is an error, and so is a value
// that Envoy refuses, also in messages of any type.
func read(value any, into proto.Message) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(text, into); err != nil {
		return err
	}
	return protorange.Range(into.ProtoReflect(), func(p protopath.Values) error {
		m, ok := p.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		if v, ok := m.Interface().(interface{ ValidateAll() error }); ok {
			return v.ValidateAll()
		}
		return nil
	})
}

// envoy reads the parts of an Envoy configuration, as far as they are there.
func envoy(parts map[string]any) error {
	for name := range parts {
		if name != "routes" && name != "http_filters" && name != "clusters" {
			return fmt.Errorf("an unknown part %s", name)
		}
	}
	filters, _ := parts["http_filters"].([]any)
	routes, _ := parts["routes"].([]any)
	manager := map[string]any{
		"stat_prefix": "x", "http_filters": append(filters, map[string]any{
			"name":         "envoy.filters.http.router",
			"typed_config": map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
		}),
		"route_config": map[string]any{"virtual_hosts": []any{map[string]any{"name": "x", "domains": []string{"*"}, "routes": routes}}},
	}
	err := read(manager, &hcm.HttpConnectionManager{})
	clusters, _ := parts["clusters"].([]any)
	for _, c := range clusters {
		err = errors.Join(err, read(c, &cluster.Cluster{}))
	}
	return err
}

// istio reads the parts of Envoy's configuration in an EnvoyFilter.
func istio(filter map[string]any) (parts int, err error) {
	spec, _ := filter["spec"].(map[string]any)
	patches, _ := spec["configPatches"].([]any)
	for _, p := range patches {
		p, _ := p.(map[string]any)
		patch, _ := p["patch"].(map[string]any)
		value, _ := patch["value"].(map[string]any)
		switch p["applyTo"] {
		case "HTTP_FILTER":
			err = errors.Join(err, envoy(map[string]any{"http_filters": []any{value}}))
		case "VIRTUAL_HOST":
			value["name"], value["domains"] = "x", []string{"*"} // of the host that the patch is merged with
			err = errors.Join(err, read(value, &route.VirtualHost{}))
		default:
			err = errors.Join(err, fmt.Errorf("an unknown applyTo: %v", p["applyTo"]))
		}
		parts++
	}
	return parts, err
}

func TestEnvoy(t *testing.T) {
	blocks := fragments(t, "docs/envoy.md")["Envoy"]
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, text := range blocks {
		docs, err := documents(text)
		if err != nil || len(docs) != 1 {
			t.Fatal(len(docs), err)
		}
		if err := envoy(docs[0]); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for right, wrong := range map[string]string{
		"remote_address: {}": "remote_adress: {}", "rate_limits:": "ratelimits:", "failure_mode_deny": "failure_mode_denied",
		"envoy_grpc": "grpc", "domain: shop": "domain: ''", "ratelimit.v3.RateLimit": "ratelimit.v3.Limit", "STRICT_DNS": "STRICT",
		"http2_protocol_options": "http2_options", "port_value: 8081": "port_value: 80810", "timeout: 0.05s": "timeout: 50ms",
		"clusters:": "cluster:", "transport_api_version: V3": "transport_api_version: v3",
	} {
		found := false
		for _, text := range blocks {
			if !strings.Contains(text, right) {
				continue
			}
			found = true
			if docs, err := documents(strings.Replace(text, right, wrong, 1)); err != nil || envoy(docs[0]) == nil {
				t.Errorf("%s is accepted: %v", wrong, err)
			}
		}
		if !found {
			t.Errorf("no block has %s", right)
		}
	}
}

func TestQuotas(t *testing.T) {
	blocks := fragments(t, "docs/envoy.md")["Quotas"]
	if len(blocks) != 1 {
		t.Fatalf("%d blocks", len(blocks))
	}
	check := func(text string) error {
		docs, err := documents(text)
		if err != nil {
			return err
		}
		return envoy(docs[0])
	}
	if err := check(blocks[0]); err != nil {
		t.Error(err)
	}
	for right, wrong := range map[string]string{
		"reporting_interval: 5s": "reporting_interval: 0.05s", "header_name": "header", "domain: shop": "domain: ''",
		"BucketSettings": "Bucket", "reuse_last_assignment": "reuse_assignment", "on_no_match": "on_match",
	} {
		if text := strings.ReplaceAll(blocks[0], right, wrong); text == blocks[0] || check(text) == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

func TestIstio(t *testing.T) {
	blocks := fragments(t, "docs/envoy.md")["Istio"]
	if len(blocks) != 1 {
		t.Fatalf("%d blocks", len(blocks))
	}
	count := func(text string) (parts int, err error) {
		docs, err := documents(text)
		for _, doc := range docs {
			n, bad := istio(doc)
			parts, err = parts+n, errors.Join(err, bad)
		}
		return parts, err
	}
	if parts, err := count(blocks[0]); err != nil || parts != 2 {
		t.Errorf("%d parts, %v", parts, err)
	}
	for right, wrong := range map[string]string{"domain: shop": "domains: shop", "remote_address": "remote_addr", "authority:": "auth:"} {
		if _, err := count(strings.Replace(blocks[0], right, wrong, 1)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// The rules of the pages are valid, and have the domain and the key that the other blocks
// name.
func TestRules(t *testing.T) {
	for page, heading := range map[string]string{"docs/envoy.md": "Rules and descriptors", "rls/README.md": "Rules"} {
		blocks := fragments(t, page)[heading]
		if len(blocks) != 1 {
			t.Fatalf("%s: %d blocks", page, len(blocks))
		}
		set, err := rls.ParseRules([]rls.File{{Name: page, Data: []byte(blocks[0])}}, false)
		if err != nil {
			t.Error(err)
			continue
		}
		if w := set.Warnings(); len(w) > 0 {
			t.Error(w)
		}
		if page == "docs/envoy.md" && (set.Domains()[0] != "shop" || !strings.HasPrefix(set.Rules()[0].Path, "shop.remote_address")) {
			t.Error(set.Domains(), set.Rules())
		}
	}
	text, err := os.ReadFile("../../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("domain: shop")); n != 7 {
		t.Errorf("the domain of the rules is named %d times, want 7: rules, Envoy, Istio, Contour, Emissary, critical calls, quotas", n)
	}
}
