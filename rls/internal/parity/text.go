package parity

import (
	"encoding/json"
	"fmt"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Text returns an answer in one line: the code, and after bars the status of each descriptor, the headers, and the
// dynamic metadata.
func Text(res *pb.RateLimitResponse) string {
	var b strings.Builder
	b.WriteString(res.GetOverallCode().String())
	for _, s := range res.GetStatuses() {
		b.WriteString(" | ")
		b.WriteString(statusText(s))
	}
	for _, h := range res.GetResponseHeadersToAdd() {
		fmt.Fprintf(&b, " | %s: %s", h.GetKey(), h.GetValue())
	}
	if res.GetDynamicMetadata() != nil {
		text, err := json.Marshal(res.GetDynamicMetadata().AsMap())
		if err != nil {
			panic(err) // a number that JSON does not have
		}
		b.WriteString(" | ")
		b.WriteString(strings.ReplaceAll(string(text), "  ", " ")) // package proto draws spaces
	}
	return b.String()
}

func statusText(s *pb.RateLimitResponse_DescriptorStatus) string {
	var b strings.Builder
	b.WriteString(s.GetCode().String())
	if l := s.GetCurrentLimit(); l != nil {
		fmt.Fprintf(&b, " %d/%v", l.GetRequestsPerUnit(), l.GetUnit())
		if l.GetName() != "" {
			fmt.Fprintf(&b, " %q", l.GetName())
		}
	}
	if s.GetLimitRemaining() > 0 || s.GetCurrentLimit() != nil {
		fmt.Fprintf(&b, " left %d", s.GetLimitRemaining())
	}
	if d := s.GetDurationUntilReset(); d != nil {
		fmt.Fprintf(&b, " reset %d", d.GetSeconds())
	}
	return b.String()
}
