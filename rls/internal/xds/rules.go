package xds

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// Rules reads the resources of a push. They go through the parser of files, so that both have the same rules, bounds and
// errors.
func Rules(resources []*anypb.Any, merge bool) (*rules.Set, error) {
	t := &translator{}
	trees := make([]rules.Tree, 0, len(resources))
	var errs []error
	for i, r := range resources {
		var c config.RateLimitConfig
		if err := r.UnmarshalTo(&c); err != nil {
			errs = append(errs, fmt.Errorf("resource %d of %d: %w", i+1, len(resources), err))
			continue
		}
		name := c.GetName()
		if name == "" {
			name = fmt.Sprintf("resource %d", i+1)
		}
		trees = append(trees, rules.Tree{Name: name, Root: t.config(&c)})
		if t.descriptors > rules.MaxDescriptors {
			return nil, fmt.Errorf("the push has more than %d descriptors", rules.MaxDescriptors)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return rules.ParseTrees(trees, merge)
}

// translator makes the tree of a file of a configuration.
type translator struct {
	descriptors int
}

func (t *translator) config(c *config.RateLimitConfig) *yaml.Node {
	return object("domain", text(c.GetDomain()), "descriptors", t.list(c.GetDescriptors()))
}

func (t *translator) list(all []*config.RateLimitDescriptor) *yaml.Node {
	if len(all) == 0 {
		return nil
	}
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for _, d := range all {
		if t.descriptors++; t.descriptors > rules.MaxDescriptors {
			break
		}
		n.Content = append(n.Content, object(
			"key", text(d.GetKey()), "value", text(d.GetValue()), "rate_limit", policy(d.GetRateLimit()),
			"shadow_mode", flag(d.GetShadowMode()), "quota_mode", flag(d.GetQuotaMode()), "detailed_metric", flag(d.GetDetailedMetric()),
			"metadata", metadataOf(d.GetMetadata()), "descriptors", t.list(d.GetDescriptors()),
		))
	}
	return n
}

// policy returns a rate_limit. A number that is missing cannot be told from 0 on the wire: it denies all calls, and the
// parser warns.
func policy(p *config.RateLimitPolicy) *yaml.Node {
	if p == nil {
		return nil
	}
	var unit, requests, replaces *yaml.Node
	if u := p.GetUnit(); u != config.RateLimitUnit_UNKNOWN || !p.GetUnlimited() {
		unit = text(strings.ToLower(u.String()))
	}
	if n := p.GetRequestsPerUnit(); n > 0 {
		requests = plain(strconv.FormatUint(uint64(n), 10))
	}
	if all := p.GetReplaces(); len(all) > 0 {
		replaces = &yaml.Node{Kind: yaml.SequenceNode}
		for _, r := range all {
			replaces.Content = append(replaces.Content, object("name", text(r.GetName())))
		}
	}
	return object("unit", unit, "requests_per_unit", requests, "unlimited", flag(p.GetUnlimited()), "name", text(p.GetName()), "replaces", replaces)
}

func metadataOf(s *structpb.Struct) *yaml.Node {
	if s == nil {
		return nil
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for name, v := range s.GetFields() {
		n.Content = append(n.Content, text(name), valueOf(v))
	}
	return n
}

func valueOf(v *structpb.Value) *yaml.Node {
	switch v := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return text(v.StringValue)
	case *structpb.Value_NumberValue:
		return plain(strconv.FormatFloat(v.NumberValue, 'g', -1, 64))
	case *structpb.Value_BoolValue:
		return plain(strconv.FormatBool(v.BoolValue))
	case *structpb.Value_StructValue:
		if v.StructValue == nil {
			return object()
		}
		return metadataOf(v.StructValue)
	case *structpb.Value_ListValue:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, one := range v.ListValue.GetValues() {
			n.Content = append(n.Content, valueOf(one))
		}
		return n
	}
	return plain("~")
}

// object returns an object of names and values. It leaves out values that are nil.
func object(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(pairs); i += 2 {
		if value := pairs[i+1].(*yaml.Node); value != nil {
			n.Content = append(n.Content, text(pairs[i].(string)), value)
		}
	}
	return n
}

func text(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: s, Style: yaml.DoubleQuotedStyle}
}

func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// flag returns true, or nothing.
func flag(v bool) *yaml.Node {
	if !v {
		return nil
	}
	return plain("true")
}
