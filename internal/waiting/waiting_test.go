package waiting_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
)

var errBack = errors.New("nobody took it back")

func TestWait(t *testing.T) {
	allowed := func(d time.Duration) hybridlimit.Result { return hybridlimit.Result{Allowed: true, Delay: d} }
	denied := func(d time.Duration) hybridlimit.Result { return hybridlimit.Result{RetryAfter: d, Limit: 5} }
	for name, tc := range map[string]struct {
		answers  []hybridlimit.Result // one after the other
		deadline time.Duration        // 0: none
		close    time.Duration        // 0: never
		want     error                // nil: served
		took     time.Duration
		back     bool // the taken units are given back
	}{
		"at once":                           {answers: []hybridlimit.Result{allowed(0)}},
		"later":                             {answers: []hybridlimit.Result{allowed(time.Second)}, took: time.Second},
		"asked again":                       {answers: []hybridlimit.Result{denied(time.Second), denied(time.Second), allowed(0)}, took: 2 * time.Second},
		"never":                             {answers: []hybridlimit.Result{denied(hybridlimit.Never)}, want: hybridlimit.ErrExceedsBurst},
		"too late to be asked again":        {answers: []hybridlimit.Result{denied(time.Second)}, deadline: time.Second, want: context.DeadlineExceeded},
		"taken for too late":                {answers: []hybridlimit.Result{allowed(time.Second)}, deadline: time.Second, want: context.DeadlineExceeded, back: true},
		"closed while what was taken waits": {answers: []hybridlimit.Result{allowed(time.Minute)}, close: time.Second, want: hybridlimit.ErrClosed, took: time.Second, back: true},
		"closed while nothing was taken":    {answers: []hybridlimit.Result{denied(time.Minute)}, close: time.Second, want: hybridlimit.ErrClosed, took: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, done := context.Background(), make(chan struct{})
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}
			if tc.close > 0 {
				time.AfterFunc(tc.close, func() { close(done) })
			}
			began, gave := time.Now(), 0
			who := waiting.Caller{Package: "p", Key: "k", N: 3, Done: done, Longest: time.Hour, Lines: new(waiting.Lines), Each: new(time.Duration)}
			res, err := who.Wait(ctx, func(most time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
				if tc.deadline == 0 && most != time.Hour || tc.deadline > 0 && most > tc.deadline {
					t.Errorf("%s: most is %v", name, most)
				}
				res := tc.answers[0]
				tc.answers = tc.answers[1:]
				if !res.Allowed {
					return res, nil, nil
				}
				return res, func(ctx context.Context) error { gave++; return errors.Join(ctx.Err(), errBack) }, nil
			})
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || res.Allowed != (err == nil) || res.Delay != 0 || len(tc.answers) > 0 {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
			if took := time.Since(began); took != tc.took {
				t.Errorf("%s: took %v, want %v", name, took, tc.took)
			}
			// The error of a failed refund is part of the error.
			if (gave == 1) != tc.back || tc.back != errors.Is(err, errBack) {
				t.Errorf("%s: %d refunds, %v", name, gave, err)
			}
		})
	}
}

func TestWaitAsksNothingInVain(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	book := func(time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
		t.Error("asked")
		return hybridlimit.Result{}, nil, nil
	}
	if _, err := (waiting.Caller{Lines: new(waiting.Lines), Each: new(time.Duration)}).Wait(ctx, book); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	book = func(time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
		return hybridlimit.Result{Allowed: true}, nil, errBack
	}
	if res, err := (waiting.Caller{Lines: new(waiting.Lines), Each: new(time.Duration)}).Wait(context.Background(), book); !errors.Is(err, errBack) || res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	book = func(time.Duration) (hybridlimit.Result, func(context.Context) error, error) {
		return hybridlimit.Result{RetryAfter: hybridlimit.Never, Limit: 5}, nil, nil
	}
	if _, err := (waiting.Caller{Package: "p", Key: "k", N: 7, Lines: new(waiting.Lines), Each: new(time.Duration)}).Wait(context.Background(), book); !strings.HasPrefix(err.Error(), `p: cost 7 of key "k": `) {
		t.Error(err)
	}
}
