package limittest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// report is code under test: it runs one report at a time for each user.
func report(ctx context.Context, running hybridlimit.Acquirer, user string) string {
	permit, res, err := running.Acquire(ctx, user)
	if err != nil || !res.Allowed {
		return "try again later"
	}
	defer permit.Release()
	return "the report"
}

func ExampleRecordPermits() {
	running := limittest.RecordPermits(nil)
	fmt.Println(report(context.Background(), running, "ann"))
	fmt.Println("held at the end:", running.Held(), "for", running.Calls()[0].Key)
	// Output:
	// the report
	// held at the end: 0 for ann
}

func TestPermitRecorder(t *testing.T) {
	calls, err := local.NewConcurrency(hybridlimit.Concurrent(3), local.ConcurrencyConfig{Name: "running"})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*limittest.PermitRecorder{"a real limiter": limittest.RecordPermits(calls), "none": limittest.RecordPermits(nil)} {
		permit, res, err := r.AcquireN(t.Context(), "k", 2)
		if err != nil || !res.Allowed || res.Granted != 2 || r.Held() != 2 {
			t.Errorf("%s: %+v, %v, %d held", name, res, err, r.Held())
		}
		_, res, err = r.AcquireN(t.Context(), "k", 2)
		if err != nil || res.Allowed != (name == "none") {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		held := r.Held()
		copied := permit
		permit.Release()
		copied.Release()
		if r.Held() != held-2 {
			t.Errorf("%s: %d held after a release of 2 of %d", name, r.Held(), held)
		}
		if _, _, err := r.Acquire(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
			t.Errorf("%s: an empty key: %v", name, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := r.Acquire(gone, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a cancelled call: %v", name, err)
		}
		for _, allow := range []func() (hybridlimit.Result, error){
			func() (hybridlimit.Result, error) { return r.Allow(t.Context(), "k") },
			func() (hybridlimit.Result, error) { return r.AllowN(t.Context(), "k", 1) },
		} {
			if _, err := allow(); !errors.Is(err, hybridlimit.ErrUnsupported) {
				t.Errorf("%s: Allow: %v", name, err)
			}
		}
		if got := r.Calls(); len(got) != 4 || got[0].N != 2 || got[3].Err == nil {
			t.Errorf("%s: %+v", name, got)
		}
		if r.Reset(); len(r.Calls()) != 0 {
			t.Errorf("%s: calls after Reset", name)
		}
	}
}
