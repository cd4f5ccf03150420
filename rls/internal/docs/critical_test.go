package docs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/rls"
)

// hosts reads the virtual hosts of a block.
func hosts(text string) ([]*route.VirtualHost, error) {
	docs, err := documents(text)
	if err != nil || len(docs) != 1 || len(docs[0]) != 1 {
		return nil, fmt.Errorf("%d documents, %v", len(docs), err)
	}
	parts, _ := docs[0]["virtual_hosts"].([]any)
	all := make([]*route.VirtualHost, len(parts))
	for i, part := range parts {
		all[i] = &route.VirtualHost{}
		err = errors.Join(err, read(part, all[i]))
	}
	return all, err
}

// descriptor returns the descriptor that Envoy makes of actions for a client.
func descriptor(t *testing.T, limits []*route.RateLimit, client string) *ratelimit.RateLimitDescriptor {
	t.Helper()
	if len(limits) != 1 {
		t.Fatalf("%d descriptors", len(limits))
	}
	d := &ratelimit.RateLimitDescriptor{}
	for _, a := range limits[0].GetActions() {
		e := &ratelimit.RateLimitDescriptor_Entry{Key: "remote_address", Value: client}
		switch g := a.GetGenericKey(); {
		case g != nil:
			e.Key, e.Value = g.GetDescriptorKey(), g.GetDescriptorValue()
		case a.GetRemoteAddress() == nil:
			t.Fatalf("an action from the request: %v", a)
		}
		d.Entries = append(d.Entries, e)
	}
	return d
}

// TestCriticalCalls checks that the routes of the page send the descriptors of its rules: payments are critical, and other routes
// leave the floor.
func TestCriticalCalls(t *testing.T) {
	blocks := fragments(t, "docs/envoy.md")["Critical calls first"]
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	set, err := rls.ParseRules([]rls.File{{Name: "docs/envoy.md", Data: []byte(blocks[0])}}, false)
	if err != nil || len(set.Warnings()) > 0 {
		t.Fatal(err, set.Warnings())
	}
	all, err := hosts(blocks[1])
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	floors := map[string]float64{}
	for _, r := range all[0].GetRoutes() {
		limits := r.GetRoute().GetRateLimits()
		if len(limits) == 0 { // Envoy takes those of the virtual host
			limits = all[0].GetRateLimits()
		}
		m, _ := set.Find("shop", descriptor(t, limits, "192.0.2.1"))
		if m.Rule == nil || m.Key != "shop|remote_address=192.0.2.1" {
			t.Fatalf("%v: %+v", r, m)
		}
		floors[r.GetMatch().GetPrefix()] = m.Rule.Floor
	}
	if fmt.Sprint(floors) != "map[/:0.2 /payments:0]" {
		t.Errorf("the floors of the routes are %v", floors)
	}
	for right, wrong := range map[string]string{"descriptor_key": "key", "rate_limits:": "ratelimits:", `["*"]`: "[]", "remote_address: {}": "remote_address: 1"} {
		if _, err := hosts(strings.ReplaceAll(blocks[1], right, wrong)); err == nil || !strings.Contains(blocks[1], right) {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
