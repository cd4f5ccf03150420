package account

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// A re-sync sends the view once. It owes nothing and asks for nothing. An empty view is not sent.
func TestFreezeOfAResync(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Account)
		lost   int64
		want   bool
	}{
		{"used", func(*Account) {}, sec, true},
		{"refilled before that was lost", func(*Account) {}, sec + 500*ms + int64(LossNoticed), false},
		{"not full by a unit", func(*Account) {}, sec + 499*ms + int64(LossNoticed), true},
		{"nobody knows when", func(*Account) {}, 0, true},
		{"not marked", func(s *Account) { s.resync = false }, sec, false},
		{"no view", func(s *Account) { s.view = view{} }, sec, false},
		{"a view of no state", func(s *Account) { s.view.createdAt = 0 }, sec, false},
	} {
		terms, now := stepTerms(), 9*sec
		terms.Lost = tc.lost
		s := seen(terms, 5)
		s.view.createdAt, s.view.redisAt, s.resync = 77, 88, true
		tc.change(&s)
		want := algo.Op{View: algo.View{Level: s.view.level, At: 88, Born: 77}}
		op, ok := s.freeze(terms, nil, now)
		if ok != tc.want || s.resync || s.asked || s.inflight != 0 {
			t.Errorf("%s: %v, then %+v", tc.name, ok, s)
		}
		if ok && (op.View != want.View || op.Owed != 0 || op.Asks != nil || op.Lost != (tc.lost > 0) || op.Div != 0) {
			t.Errorf("%s: %+v", tc.name, op)
		}
		if ok {
			s.settle(terms, Answer{Answer: algo.Answer{Level: 1, Born: 99}, RedisNow: 100, Sent: now}, nil, now)
			if s.view.createdAt != 99 || s.view.level != 1 {
				t.Errorf("%s: view %+v", tc.name, s.view)
			}
		}
		if _, ok := s.freeze(terms, nil, now); ok {
			t.Errorf("%s: the view was sent twice", tc.name)
		}
	}
}

// A view from before a loss is marked as such.
func TestViewsFromBeforeALoss(t *testing.T) {
	for _, tc := range []struct {
		lost int64
		want bool
	}{{0, false}, {sec - 1, false}, {sec, true}, {2 * sec, true}} {
		terms := stepTerms()
		terms.Lost = tc.lost
		s := seen(terms, 5)
		s.pending = 1
		if op, ok := s.freeze(terms, nil, sec); !ok || op.Lost != tc.want {
			t.Errorf("lost at %d: %v, %+v", tc.lost, ok, op)
		}
	}
}
