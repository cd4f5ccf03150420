// Package connectlimit has the answers for connect of docs/http.md.
package connectlimit

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// ConnectDenied returns a Config.Denied that answers a call with an error of its protocol: Connect, gRPC or gRPC-Web.
// The options are those of the handlers.
func ConnectDenied(opts ...connect.HandlerOption) func(http.ResponseWriter, *http.Request, httplimit.Denial) {
	writer := connect.NewErrorWriter(opts...)
	return func(w http.ResponseWriter, r *http.Request, d httplimit.Denial) {
		if !writer.IsSupported(r) {
			httplimit.Problem(w, r, d)
			return
		}
		denied := connect.NewError(connect.CodeUnavailable, errors.New("the rate limit cannot be checked"))
		switch d.Status {
		case http.StatusTooManyRequests:
			denied = connect.NewError(connect.CodeResourceExhausted, errors.New("rate limit exceeded"))
		case http.StatusBadRequest:
			denied = connect.NewError(connect.CodeInvalidArgument, errors.New("the key or the cost is invalid"))
		case http.StatusUnauthorized:
			denied = connect.NewError(connect.CodeUnauthenticated, errors.New("the call has no key"))
		}
		if d.RetryAfter > 0 {
			if info, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}); err == nil {
				denied.AddDetail(info)
			}
		}
		writer.Write(w, r, denied)
	}
}
