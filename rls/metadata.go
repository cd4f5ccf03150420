package rls

import (
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadataOf returns the dynamic metadata, with the fields of envoyproxy/ratelimit.
func metadataOf(req *pb.RateLimitRequest, verdicts []verdict, quota bool) *structpb.Struct {
	descriptors := make([]*structpb.Value, 0, len(req.GetDescriptors()))
	for _, d := range req.GetDescriptors() {
		if d != nil {
			descriptors = append(descriptors, structpb.NewStructValue(metadataOfDescriptor(d)))
		}
	}
	fields := map[string]*structpb.Value{
		"domain":      structpb.NewStringValue(req.GetDomain()),
		"descriptors": listOf(descriptors),
	}
	if n := req.GetHitsAddend(); n != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n))
	}
	var exceeded []*structpb.Value
	enabled := false
	for i := range verdicts {
		v := &verdicts[i]
		enabled = enabled || v.state == asked && v.quota
		if v.over && !v.shadow && v.isQuota(quota) {
			exceeded = append(exceeded, structpb.NewNumberValue(float64(i)))
		}
	}
	if len(exceeded) > 0 {
		fields["quotaModeViolations"] = listOf(exceeded)
	}
	fields["quotaModeEnabled"] = structpb.NewBoolValue(enabled)
	return &structpb.Struct{Fields: fields}
}

func metadataOfDescriptor(d *ratelimit.RateLimitDescriptor) *structpb.Struct {
	entries := make([]*structpb.Value, 0, len(d.GetEntries()))
	for _, e := range d.GetEntries() {
		entries = append(entries, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
	}
	fields := map[string]*structpb.Value{"entries": listOf(entries)}
	if d.GetLimit() != nil {
		fields["limit"] = structpb.NewStringValue(d.GetLimit().String())
	}
	if n := d.GetHitsAddend(); n != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}

func listOf(values []*structpb.Value) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: values})
}
