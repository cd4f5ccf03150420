package restore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

const second = int64(1e6)

// TestSee checks which sights ask, and what Redis is told then.
func TestSee(t *testing.T) {
	plan := account.NewPlan(hybridlimit.CalendarWindow(1000, hybridlimit.Calendar{Unit: hybridlimit.Day}))
	const begin = int64(10 * 86400 * 1e6)
	sight := func(born, now, used int64) Sight {
		return Sight{Key: "k", Plan: plan, Begin: begin, Born: begin + born*second, Now: begin + now*second, Used: used}
	}
	next := sight(86400, 86401, 1)
	next.Begin += 86400 * second
	for _, tc := range []struct {
		name   string
		sights []Sight
		used   int64  // the answer
		told   string // used units and age of each view
	}{
		{"a new state", []Sight{sight(100, 101, 7)}, 300, "300@100 "},
		{"nothing used", []Sight{sight(100, 101, 7)}, 0, ""},
		{"more than a limit of debt", []Sight{sight(100, 101, 7)}, 1e15, "2000@100 "},
		{"once", []Sight{sight(100, 101, 7), sight(100, 102, 70), sight(100, 999, 70)}, 300, "300@100 "},
		{"of the period before", []Sight{sight(-1, 101, 7)}, 300, ""},
		{"no new state: not yet", []Sight{sight(100, 105, 40), sight(100, 109, 80)}, 300, ""},
		{"no new state: without the units before", []Sight{sight(100, 105, 40), sight(100, 110, 80)}, 300, "260@100 "},
		{"no new state: Redis has all", []Sight{sight(100, 105, 300), sight(100, 110, 310)}, 300, ""},
		{"lost once more", []Sight{sight(100, 101, 7), sight(200, 201, 3)}, 300, "300@100 300@200 "},
		{"the next period", []Sight{sight(100, 101, 7), next}, 300, "300@100 300@86400 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := ""
				a := New(Env{
					Keys: 10,
					Ask: func(context.Context, string, time.Time) (int64, time.Time, error) {
						return tc.used, time.UnixMicro(2 * begin), nil
					},
					Tell: func(_ context.Context, _ string, _ *account.Plan, v algo.View) bool {
						told += fmt.Sprintf("%d@%d ", 1000-v.Level, (v.At-begin)/second)
						return true
					},
					Told: func(string) {}, Failed: func(_ string, err error) { t.Error(err) },
				})
				defer a.Close()
				for _, s := range tc.sights {
					a.See(s)
					synctest.Wait()
				}
				if told != tc.told {
					t.Errorf("told %q, want %q", told, tc.told)
				}
			})
		})
	}
}

// TestBadAnswers checks that an answer that cannot be right is a failure.
func TestBadAnswers(t *testing.T) {
	for _, tc := range []struct {
		used int64
		at   time.Time
	}{{-1, time.UnixMicro(5 * second)}, {1, time.UnixMicro(3 * second)}, {1, time.Time{}}} {
		a := New(Env{Keys: 1, Ask: func(context.Context, string, time.Time) (int64, time.Time, error) { return tc.used, tc.at, nil }})
		if _, _, err := a.ask(Sight{Begin: 4 * second}); err == nil {
			t.Errorf("%d at %v is no error", tc.used, tc.at)
		}
		a.Close()
	}
}

// TestQuestionsEnd checks that the context of a question ends after five seconds, and that the error of the callback is
// reported.
func TestQuestionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, took := time.Now(), time.Duration(0)
		a := New(Env{
			Keys: 1,
			Ask: func(ctx context.Context, _ string, _ time.Time) (int64, time.Time, error) {
				<-ctx.Done()
				return 0, time.Time{}, ctx.Err()
			},
			Failed: func(_ string, err error) {
				if took = time.Since(began); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			},
		})
		defer a.Close()
		a.See(Sight{Key: "k", Born: second, Now: second})
		time.Sleep(patience)
		synctest.Wait()
		if took != patience {
			t.Errorf("the question took %v, want %v", took, patience)
		}
	})
}
