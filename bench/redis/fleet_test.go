package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestMemberEndsWithItsParent checks that the process of a member ends when its
// input ends, even in a turn that would take long.
func TestMemberEndsWithItsParent(t *testing.T) {
	t.Parallel()
	srv := testServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // kills the process
	defer cancel()
	p, err := spawn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	place := membership{Kind: "redis_rate", Addr: srv.Addr, Of: 1, Keys: 10, Limit: hybridlimit.PerMinute(100)}
	if err := p.Ask(order{Join: &place}, nil); err != nil {
		t.Error(err)
	}
	if err := p.Send(order{PerSecond: 1, Lasts: time.Hour}); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestMemberMain checks the protocol: one line for each message.
func TestMemberMain(t *testing.T) {
	t.Parallel()
	srv := testServer(t)
	type answer struct {
		Reply turned
		Err   string
	}
	member := func(lines ...any) (answers []answer, err error) {
		fromParent, toMember := io.Pipe()
		fromMember, toParent := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			err := memberMain(t.Context(), fromParent, toParent)
			fromParent.CloseWithError(io.EOF)
			toParent.Close()
			ended <- err
		}()
		enc, dec := json.NewEncoder(toMember), json.NewDecoder(bufio.NewReader(fromMember))
		for _, line := range lines {
			if err := enc.Encode(line); err != nil {
				break // it has ended
			}
			var a answer
			if err := dec.Decode(&a); err != nil {
				break
			}
			answers = append(answers, a)
		}
		toMember.Close()
		return answers, <-ended
	}
	place := membership{Kind: "redis_rate", Addr: srv.Addr, Of: 1, Keys: 10, Limit: hybridlimit.PerMinute(100)}
	alone := order{Join: &place}
	turn := order{Turn: 3, PerSecond: 500, Lasts: 50 * time.Millisecond}
	answers, err := member(alone, turn, turn)
	if err != nil || len(answers) != 3 || answers[0].Reply.Calls != 0 || answers[1].Reply.Calls < 1 ||
		answers[1].Reply.Calls != answers[2].Reply.Calls {
		t.Fatalf("%+v, %v", answers, err)
	}
	// Keys and times are those of the turn and of the member.
	second := place
	second.Number = 1
	more, err := member(order{Join: &second}, turn)
	if err != nil || len(more) != 2 || more[1].Reply.Calls == answers[1].Reply.Calls &&
		more[1].Reply.Spent.Sent == answers[1].Reply.Spent.Sent {
		t.Errorf("another member does the same: %+v, %v", more, err)
	}
	nobody := membership{Kind: "nobody", Limit: hybridlimit.PerMinute(100)}
	if answers, err := member(order{Join: &nobody}); err != nil || len(answers) != 1 || !strings.Contains(answers[0].Err, "nobody") {
		t.Errorf("an unknown limiter: %+v, %v", answers, err)
	}
	if _, err := member("no membership"); err == nil {
		t.Error("no error for a malformed membership")
	}
	if answers, err := member(alone, "no order"); err == nil || len(answers) != 1 {
		t.Errorf("no error for a malformed order: %+v", answers)
	}
}

func TestOptions(t *testing.T) {
	if err := (options{size: tiny, only: []string{"idle", "nothing"}}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("-only with an unknown section: %v", err)
	}
	if err := (options{size: tiny, only: []string{"idle"}, write: "page"}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "-write") {
		t.Errorf("-write with -only: %v", err)
	}
	srv := testServer(t)
	r, err := options{size: tiny, only: []string{"survival"}}.measure(t.Context(), srv)
	if err != nil || len(r.Of("survival")) == 0 || len(r.Of("decision")) > 0 {
		t.Errorf("-only survival: %+v, %v", r, err)
	}
	page := r.page()
	if strings.Contains(page, "NaN") || strings.Contains(page, "## A decision") || !strings.Contains(page, "golang-lru") {
		t.Errorf("-only survival:\n%s", page)
	}
	names := sectionNames()
	slices.Sort(names)
	if len(slices.Compact(names)) != len(sections) {
		t.Errorf("sections %v", names)
	}
}
