package rls

import (
	"maps"
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// answer makes the response of a decided call.
func (c *call) answer(req *pb.RateLimitRequest) *pb.RateLimitResponse {
	return compose(req, c.verdicts, &c.s.options)
}

// small has the messages of a response of up to two descriptors. One allocation is cheaper than one for each message.
type small struct {
	response pb.RateLimitResponse
	statuses [2]pb.RateLimitResponse_DescriptorStatus
	resets   [2]durationpb.Duration
	headers  [3]core.HeaderValue
	at       [2]*pb.RateLimitResponse_DescriptorStatus
	headerAt [3]*core.HeaderValue
}

// compose makes a response of verdicts, one for each descriptor. It is a function of its arguments and of the clock:
// the count of a fixed window that was not used yet says nothing about the end of the window.
func compose(req *pb.RateLimitRequest, verdicts []verdict, o *Options) *pb.RateLimitResponse {
	var statuses []pb.RateLimitResponse_DescriptorStatus
	var resets []durationpb.Duration
	block := new(small)
	response := &block.response
	if n := len(verdicts); n <= len(block.statuses) {
		statuses, resets, response.Statuses = block.statuses[:n], block.resets[:n], block.at[:n]
	} else {
		statuses, resets = make([]pb.RateLimitResponse_DescriptorStatus, n), make([]durationpb.Duration, n)
		response.Statuses = make([]*pb.RateLimitResponse_DescriptorStatus, n)
	}
	for i := range verdicts {
		status := &statuses[i]
		verdicts[i].status(status, &resets[i])
		response.Statuses[i] = status
	}
	response.OverallCode = pb.RateLimitResponse_OK
	denied := denialOf(verdicts, o.Quota)
	if o.Shadow {
		denied = noDenial
	}
	if denied != noDenial {
		response.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	h := headers{list: block.headerAt[:0], room: block.headers[:]}
	if !o.NoDraftHeaders {
		h.draft(verdicts, denied, o.Quota)
	}
	if o.LegacyHeaders {
		h.legacy(verdicts, response.Statuses, o)
	}
	if len(h.list) > 0 {
		response.ResponseHeadersToAdd = h.list
	}
	if o.Metadata {
		response.DynamicMetadata = metadataOf(req, verdicts)
	}
	return response
}

// denial is the reason why a request is denied.
type denial uint8

const (
	noDenial denial = iota
	byRule          // a rule denies it, that is neither in shadow nor a quota
	byQuotas        // it has quotas, and all are used up
)

// denialOf returns the reason why a request is denied. With quota every rule is a quota.
func denialOf(verdicts []verdict, quota bool) denial {
	for i := range verdicts {
		if verdicts[i].denies(quota) {
			return byRule
		}
	}
	if spent(verdicts, quota) {
		return byQuotas
	}
	return noDenial
}

// spent reports whether a request has quotas, and all are used up. If every rule is a quota, a descriptor without one is a
// quota that is never used up. A rule in shadow never is, and one without a limit is no quota.
func spent(verdicts []verdict, quota bool) bool {
	all, used := 0, 0
	for i := range verdicts {
		if v := &verdicts[i]; v.state != unlimited && v.isQuota(quota) {
			all++
			if v.exceeded() {
				used++
			}
		}
	}
	return all > 0 && all == used
}

// denies reports whether the rule alone denies the request. With quota every rule is a quota.
func (v *verdict) denies(quota bool) bool { return v.exceeded() && !v.isQuota(quota) }

// exceeded reports whether the rule is over, as its status tells. A rule in shadow tells nothing.
func (v *verdict) exceeded() bool { return v.over && !v.shadow }

func (v *verdict) isQuota(all bool) bool { return v.quota || all }

// status fills the status of the descriptor.
func (v *verdict) status(to *pb.RateLimitResponse_DescriptorStatus, reset *durationpb.Duration) {
	to.Code = pb.RateLimitResponse_OK
	switch v.state {
	case unlimited:
		to.LimitRemaining = math.MaxUint32
	case asked:
		if v.exceeded() {
			to.Code = pb.RateLimitResponse_OVER_LIMIT
		}
		to.CurrentLimit = v.limit
		to.LimitRemaining = v.left()
		reset.Seconds = v.untilReset()
		to.DurationUntilReset = reset
	}
}

// left returns the units left, as the protocol has them. A request for more units than are left is over, and then no
// unit is left for the client.
func (v *verdict) left() uint32 {
	if v.over {
		return 0
	}
	return clamp(v.remaining)
}

// untilReset returns the seconds until the count is as unused. For a window whose end is not known it uses the clock of
// this process.
func (v *verdict) untilReset() int64 {
	if v.reset == 0 && v.algorithm == hybridlimit.AlgCalendarWindow {
		_, end, err := v.calendar.Bounds(time.Now())
		if err != nil { // the rule was checked
			return 0
		}
		return ratelimitheader.Seconds(time.Until(end))
	}
	if v.reset > 0 || v.algorithm != hybridlimit.AlgFixedWindow && v.algorithm != hybridlimit.AlgBlocked {
		return v.reset
	}
	window := int64(rules.Period(v.limit.GetUnit()) / time.Second)
	if m := v.limit.GetUnitMultiplier(); m != nil {
		window *= int64(m.GetValue())
	}
	if window < 1 {
		return 0
	}
	return window - time.Now().Unix()%window
}

// headers collects the headers of a response.
type headers struct {
	list []*core.HeaderValue
	room []core.HeaderValue
}

func (h *headers) add(name, value string) {
	if len(h.room) == 0 {
		h.room = make([]core.HeaderValue, 4)
	}
	one := &h.room[0]
	h.room = h.room[1:]
	one.Key, one.Value = name, value
	h.list = append(h.list, one)
}

// draft adds RateLimit and RateLimit-Policy, and Retry-After to a denial. The fields leave out limits that do not hold
// for the fleet, and rules in shadow: the client need not obey them. RateLimit of a denial has only limits that deny,
// because the draft forbids a t that ends after Retry-After.
func (h *headers) draft(verdicts []verdict, denied denial, quota bool) {
	retry := retryAfter(verdicts, denied, quota)
	var lines, policies [192]byte
	line, policy, only := lines[:0], policies[:0], ""
	for i := range verdicts {
		v := &verdicts[i]
		if v.item == nil || !v.holds || v.shadow || v.state != asked {
			continue
		}
		if only == "" && len(policy) == 0 {
			only = v.item.Policy
		} else {
			if only != "" {
				policy, only = append(policy, only...), ""
			}
			policy = append(append(policy, ", "...), v.item.Policy...)
		}
		switch {
		case denied == noDenial:
			line = v.item.Append(line, v.remaining, v.item.Effective(v.remaining, time.Duration(v.reset)*time.Second))
		case v.denies(quota), denied == byQuotas && v.exceeded():
			line = v.item.Append(line, v.remaining, retry)
		}
	}
	if only == "" && len(policy) > 0 {
		only = string(policy)
	}
	if only != "" {
		h.add("RateLimit-Policy", only)
	}
	if len(line) > 0 {
		h.add("RateLimit", string(line))
	}
	if retry > 0 {
		h.add("Retry-After", strconv.FormatInt(retry, 10))
	}
}

// retryAfter returns the seconds until a denied request may pass: until all rules that deny it admit it again, or one of
// the quotas does. 0: waiting does not help.
func retryAfter(verdicts []verdict, denied denial, quota bool) (seconds int64) {
	for i := range verdicts {
		v := &verdicts[i]
		switch {
		case denied == byRule && v.denies(quota):
			if v.retry == 0 {
				return 0
			}
			seconds = max(seconds, v.retry)
		case denied == byQuotas && v.exceeded() && v.retry > 0 && (seconds == 0 || v.retry < seconds):
			seconds = v.retry
		}
	}
	return seconds
}

// legacy adds the headers of envoyproxy/ratelimit, about the limit with the fewest units left. In a denial that is the
// last limit that denies.
func (h *headers) legacy(verdicts []verdict, statuses []*pb.RateLimitResponse_DescriptorStatus, o *Options) {
	var least *pb.RateLimitResponse_DescriptorStatus
	denied := false
	for i := range verdicts {
		v, s := &verdicts[i], statuses[i]
		if v.state != asked {
			continue
		}
		switch denies := v.denies(o.Quota); {
		case denies:
			least, denied = s, true
		case !denied && (least == nil || s.GetLimitRemaining() < least.GetLimitRemaining()):
			least = s
		}
	}
	if least == nil {
		return
	}
	h.add(o.LimitHeader, strconv.FormatUint(uint64(least.GetCurrentLimit().GetRequestsPerUnit()), 10))
	h.add(o.RemainingHeader, strconv.FormatUint(uint64(least.GetLimitRemaining()), 10))
	h.add(o.ResetHeader, strconv.FormatInt(least.GetDurationUntilReset().GetSeconds(), 10))
}

// metadataOf returns the dynamic metadata, with the fields of envoyproxy/ratelimit.
func metadataOf(req *pb.RateLimitRequest, verdicts []verdict) *structpb.Struct {
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
	var passed *structpb.Struct
	for i := range verdicts {
		if v := &verdicts[i]; v.state == asked && !v.exceeded() {
			passed = merged(passed, v.metadata)
		}
	}
	if len(passed.GetFields()) > 0 {
		fields["metadata"] = structpb.NewStructValue(proto.CloneOf(passed)) // the answer belongs to the caller, and the rest to rules
	}
	return &structpb.Struct{Fields: fields}
}

// merged adds the fields of an object that are not in another one. Objects inside are merged too. It changes neither,
// because they belong to rules.
func merged(first, more *structpb.Struct) *structpb.Struct {
	switch {
	case len(more.GetFields()) == 0:
		return first
	case len(first.GetFields()) == 0:
		return more
	}
	all := maps.Clone(first.GetFields())
	for name, value := range more.GetFields() {
		have, there := all[name]
		switch {
		case !there:
			all[name] = value
		case have.GetStructValue() != nil && value.GetStructValue() != nil:
			all[name] = structpb.NewStructValue(merged(have.GetStructValue(), value.GetStructValue()))
		}
	}
	return &structpb.Struct{Fields: all}
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
