package rls

import (
	"fmt"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

const day = 24 * time.Hour

// override is the limit that a descriptor brings.
type override struct {
	limit  hybridlimit.Limit
	period time.Duration
	answer *pb.RateLimitResponse_RateLimit
}

// overrideOf reads the limit of a descriptor.
func overrideOf(d *ratelimit.RateLimitDescriptor_RateLimitOverride) (override, error) {
	// The enums have the same numbers.
	unit := pb.RateLimitResponse_RateLimit_Unit(d.GetUnit())
	period := rules.Period(unit)
	if period == 0 {
		return override{}, status.Error(codes.InvalidArgument, fmt.Sprintf("rls: limit.unit (%d) of a descriptor must be a unit", d.GetUnit()))
	}
	if m := d.GetUnitMultiplier(); m != nil {
		most := uint32(maxPeriod / period)
		if m.GetValue() < 1 || m.GetValue() > most {
			return override{}, status.Error(codes.InvalidArgument, fmt.Sprintf(
				"rls: limit.unit_multiplier (%d) of a descriptor must be 1 to %d for the unit %v", m.GetValue(), most, unit))
		}
		period *= time.Duration(m.GetValue())
	}
	o := override{
		limit: hybridlimit.FixedWindow(int64(d.GetRequestsPerUnit()), period), period: period,
		answer: &pb.RateLimitResponse_RateLimit{RequestsPerUnit: d.GetRequestsPerUnit(), Unit: unit, UnitMultiplier: d.GetUnitMultiplier()},
	}
	if d.GetRequestsPerUnit() == 0 {
		o.limit = hybridlimit.Blocked()
	}
	return o, nil
}

// maxPeriod is the longest window, a little below that of hybridlimit.
const maxPeriod = 35 * 365 * day
