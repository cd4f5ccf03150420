package grpclimit_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/exported"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// blamed has each error of the library, and the code of a call for which a limiter
// returns it, with FailClosed and with FailOpen. List each new error here: decide
// whether a client's key, cost or metadata can cause it.
var blamed = map[string]struct {
	err          error
	closed, open codes.Code
}{
	"hybridlimit.ErrClosed":      {hybridlimit.ErrClosed, codes.Unavailable, codes.OK},
	"hybridlimit.ErrUnavailable": {hybridlimit.ErrUnavailable, codes.Unavailable, codes.OK},
	"global.NotReturnedError":    {&global.NotReturnedError{Err: hybridlimit.ErrUnavailable}, codes.Unavailable, codes.OK}, // no decision beside it

	"hybridlimit.ErrEmptyKey":     {hybridlimit.ErrEmptyKey, codes.InvalidArgument, codes.InvalidArgument},
	"hybridlimit.ErrKeyTooLong":   {hybridlimit.ErrKeyTooLong, codes.InvalidArgument, codes.InvalidArgument},
	"hybridlimit.ErrCost":         {hybridlimit.ErrCost, codes.InvalidArgument, codes.InvalidArgument},
	"hybridlimit.ErrExceedsBurst": {hybridlimit.ErrExceedsBurst, codes.InvalidArgument, codes.InvalidArgument},

	"hybridlimit.ErrInvalid":     {hybridlimit.ErrInvalid, codes.Unavailable, codes.Unavailable},
	"hybridlimit.InvalidError":   {&hybridlimit.InvalidError{Package: "local"}, codes.Unavailable, codes.Unavailable},
	"hybrid.ErrFleetKeysFull":    {hybrid.ErrFleetKeysFull, codes.Unavailable, codes.Unavailable},                                                                  // of SetFleetKeyLimit, never of a call
	"hybrid.SettingsError":       {&hybrid.SettingsError{Limiter: "api", Err: &hybridlimit.InvalidError{Package: "hybrid"}}, codes.Unavailable, codes.Unavailable}, // of SetSettings, never of a call
	"hybridlimit.ErrTooManyKeys": {hybridlimit.ErrTooManyKeys, codes.Unavailable, codes.Unavailable},                                                               // a client can cause it with many keys
	"hybridlimit.ErrUnsupported": {hybridlimit.ErrUnsupported, codes.Unavailable, codes.Unavailable},
	"hybridlimit.ErrNilClient":   {hybridlimit.ErrNilClient, codes.Unavailable, codes.Unavailable},
	"httplimit.ErrNoLimit":       {httplimit.ErrNoLimit, codes.Unavailable, codes.Unavailable},
	"httplimit.ErrNoKey":         {httplimit.ErrNoKey, codes.Unavailable, codes.Unavailable},
	"httplimit.BusyError":        {&httplimit.BusyError{}, codes.Unavailable, codes.Unavailable},
	"grpclimit.BusyError":        {&grpclimit.BusyError{}, codes.Unavailable, codes.Unavailable},
	"limittest.ErrScriptOver":    {limittest.ErrScriptOver, codes.Unavailable, codes.Unavailable},
	"breaker.ErrSlow":            {breaker.ErrSlow, codes.Unavailable, codes.Unavailable},
	"wire.ErrFull":               {wire.ErrFull, codes.Unavailable, codes.Unavailable},
	"wire.ErrRefused":            {wire.ErrRefused, codes.Unavailable, codes.Unavailable},
	"wire.ErrReply":              {wire.ErrReply, codes.Unavailable, codes.Unavailable}, // limiters wrap it in ErrUnavailable
}

// Of all errors that the library exports, only those of an unavailable limiter admit
// a call, and only with FailOpen: alone, beside another limit, in a joint call, and
// in streams.
func TestErrorsThatPass(t *testing.T) {
	listed := slices.Sorted(maps.Keys(blamed))
	found, err := exported.Errors("..", "../local", "../global", "../hybrid", "../lua", "../internal/wire", "../sync", "../breaker", "../limittest", "../otellimit", "../httplimit", ".")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, listed) {
		t.Errorf("the library exports the errors\n%q, and blamed has\n%q: add each error to blamed, with its codes", found, listed)
	}
	ends, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	over, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	left, leaveFor := context.WithCancelCause(t.Context())
	leaveFor(hybridlimit.ErrClosed)
	type row struct {
		err          error
		closed, open codes.Code
		ctx          context.Context
	}
	rows := map[string]row{
		"the limiter's deadline":            {context.DeadlineExceeded, codes.Unavailable, codes.OK, t.Context()},
		"a deadline, and the call's too":    {context.DeadlineExceeded, codes.Unavailable, codes.Unavailable, ends},
		"the call's deadline":               {context.DeadlineExceeded, codes.DeadlineExceeded, codes.DeadlineExceeded, over},
		"the client has gone":               {context.Canceled, codes.Canceled, codes.Canceled, gone},
		"the client has gone, with a cause": {hybridlimit.ErrClosed, codes.Canceled, codes.Canceled, left},
		"no Redis, and the client has gone": {hybridlimit.ErrUnavailable, codes.Canceled, codes.Canceled, gone},
		"something cancelled":               {context.Canceled, codes.Unavailable, codes.Unavailable, t.Context()},
		"no Redis, and a bad key":           {fmt.Errorf("%w: %w", hybridlimit.ErrUnavailable, hybridlimit.ErrKeyTooLong), codes.InvalidArgument, codes.InvalidArgument, t.Context()},
		"no Redis, and a bad limit":         {fmt.Errorf("%w: %w", hybridlimit.ErrUnavailable, hybridlimit.ErrInvalid), codes.Unavailable, codes.Unavailable, t.Context()},
	}
	for name, b := range blamed {
		rows[name] = row{b.err, b.closed, b.open, t.Context()}
	}
	for name, row := range rows {
		err := fmt.Errorf("wrapped: %w", row.err)
		for how, want := range map[grpclimit.Failure]codes.Code{grpclimit.FailClosed: row.closed, grpclimit.FailOpen: row.open} {
			for kind, limits := range map[string][]grpclimit.Limit{
				"alone":    {{Limiter: failing{err}, Key: fixed("k")}},
				"first":    {{Limiter: failing{err}, Key: fixed("k"), Name: "a"}, {Limiter: limittest.AllowAll(), Key: fixed("k"), Name: "b"}},
				"last":     {{Limiter: limittest.AllowAll(), Key: fixed("k"), Name: "a"}, {Limiter: failing{err}, Key: fixed("k"), Name: "b"}},
				"together": {{Limiter: failingJoint{failing{err}}, Key: fixed("k"), Name: "a"}, {Limiter: failingJoint{failing{err}}, Key: fixed("k"), Name: "b"}},
			} {
				cfg := grpclimit.Config{Failure: how, Logger: quiet}
				a := unary(t, cfg, limits...)(row.ctx)
				b, _ := streamed(row.ctx, t, cfg, 0, limits...)
				for i := range limits {
					limits[i].PerMessage = true
				}
				c, received := streamed(row.ctx, t, cfg, 1, limits...)
				for call, got := range map[string]answer{"unary": a, "stream": b, "message": c} {
					if got.code != want || call != "message" && got.served != (want == codes.OK) || got.pushback != "" || got.retry != nil || got.quota != nil {
						t.Errorf("%s, %s, %s, %v: %+v, want %v", name, kind, call, how, got, want)
					}
				}
				if received > 0 != (want == codes.OK) {
					t.Errorf("%s, %s, %v: %d messages", name, kind, how, received)
				}
			}
		}
	}
}
