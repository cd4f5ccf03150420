package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	compose "github.com/compose-spec/compose-go/v2/types"
	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3" // for its type
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"    // for its type
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // for its type
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"
)

// project reads the compose file.
func project(t *testing.T) *compose.Project {
	t.Helper()
	dir, err := filepath.Abs("compose")
	if err != nil {
		t.Fatal(err)
	}
	p, err := loader.LoadWithContext(context.Background(), compose.ConfigDetails{
		WorkingDir: dir, ConfigFiles: []compose.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCompose checks that each file that a container reads is there, and that each image has a version.
func TestCompose(t *testing.T) {
	p := project(t)
	for _, name := range []string{"envoy", "hybridlimit", "redis", "prometheus", "grafana"} {
		if _, ok := p.Services[name]; !ok {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s: %v, read-only %t", name, err, v.ReadOnly)
			}
		}
		if _, version, _ := strings.Cut(s.Image, ":"); s.Build == nil && (version == "" || version == "latest") {
			t.Errorf("%s: the image %q has no version", name, s.Image)
		}
		if b := s.Build; b != nil {
			if _, err := os.Stat(filepath.Join(b.Context, b.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	text, err := os.ReadFile("compose/rules/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	valid(t, map[string]string{"shop.yaml": string(text)})
}

// envoy reads a configuration of Envoy. An unknown field is an error, and so is a value that Envoy refuses. Messages of any
// type are validated one by one: ValidateAll does not look inside them.
func envoy(text string) (validated int, err error) {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return 0, err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	var b bootstrap.Bootstrap
	if err := protojson.Unmarshal(data, &b); err != nil {
		return 0, err
	}
	err = protorange.Range(b.ProtoReflect(), func(p protopath.Values) error {
		m, ok := p.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		v, ok := m.Interface().(interface {
			proto.Message
			ValidateAll() error
		})
		if !ok {
			return nil
		}
		validated++
		if err := v.ValidateAll(); err != nil {
			return fmt.Errorf("%s: %w", m.Descriptor().FullName(), err)
		}
		return nil
	})
	return validated, err
}

// TestEnvoy reads the configuration of the Envoy, and some that are wrong.
func TestEnvoy(t *testing.T) {
	data, err := os.ReadFile("compose/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if n, err := envoy(text); err != nil || n < 20 {
		t.Errorf("%d messages, %v", n, err)
	}
	for right, wrong := range map[string]string{
		"stat_prefix: http": "stat_prefix: ''", "domain: shop": "domain: ''", "prefix: /": "prefx: /", "status: 200": "status: 99",
		"RateLimit\n": "RateLimits\n", "cluster_name: hybridlimit}": "cluster_name: ''}", "interval: 10s": "interval: 0s", "port_value: 8081": "port_value: 80810",
		"remote_address: {}": "remote_addr: {}", "STRICT_DNS": "STRICT",
	} {
		if !strings.Contains(text, right) {
			t.Errorf("there is no %s", right)
		}
		if _, err := envoy(strings.Replace(text, right, wrong, 1)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
	p := project(t)
	if !strings.Contains(text, "address: hybridlimit, port_value: 8081") || p.Services["envoy"].Ports[0].Target != 10000 {
		t.Error("Envoy does not ask the service of the compose file, or is not on its port")
	}
}
