package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/spend"
)

// login is the recipe of docs/http.md: only failed logins count.
func login(attempts hybridlimit.Limiter, valid func(user, password string) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password := r.PostFormValue("user"), r.PostFormValue("password")
		ask := hybridlimit.Ask{Limiter: attempts, Key: clientkey.User("", user), N: 1}
		attempt, res, err := spend.Begin(r.Context(), ask) // before the password is looked at
		if err != nil || !res.Allowed {
			http.Error(w, "too many failed logins", http.StatusTooManyRequests)
			return
		}
		defer func() { // also if the client has gone
			if err := attempt.Settle(r.Context()); err != nil {
				fmt.Println(err)
			}
		}()
		if !valid(user, password) {
			http.Error(w, "wrong user or password", http.StatusUnauthorized)
			return
		}
		if _, err := attempt.Use(r.Context(), 0, 0); err != nil { // Settle gives the attempt back
			fmt.Println(err)
		}
	}
}

// The page has the recipe that is tested here.
func TestPageHasTheRecipe(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("login_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(page), "\n## Only failed logins count\n")
	_, recipe, _ = strings.Cut(recipe, "```go\n")
	recipe, _, _ = strings.Cut(recipe, "```\n")
	lines := 0
	for line := range strings.Lines(recipe) {
		if line = strings.TrimSpace(line); line != "log.Print(err)" && !strings.Contains(string(source), line) {
			t.Errorf("the tested recipe has no line %q", line)
		}
		lines++
	}
	if lines < 10 {
		t.Errorf("the recipe of the page has %d lines", lines)
	}
}

// TestOnlyFailedLoginsCount lets forty guesses come at once, where Peek and a later Charge let all of them through, and a user who
// logs in a hundred times, also with a client that leaves.
func TestOnlyFailedLoginsCount(t *testing.T) {
	attempts, err := local.New(hybridlimit.PerHour(5), local.Config{Name: "login"})
	if err != nil {
		t.Fatal(err)
	}
	defer attempts.Close()
	var looked atomic.Int64
	h := login(attempts, func(_, password string) bool {
		looked.Add(1)
		return password == "right"
	})
	try := func(ctx context.Context, user, password string) int {
		form := url.Values{"user": {user}, "password": {password}}
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/login", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h(w, r)
		return w.Code
	}
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() { try(t.Context(), "ann", "guess") })
	}
	all.Wait()
	if n := looked.Load(); n != 5 {
		t.Errorf("%d of 40 guesses at once were looked at, want 5", n)
	}
	gone, cancel := context.WithCancel(t.Context())
	for i := range 100 {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = gone
		}
		if code := try(ctx, "bob", "right"); code != http.StatusOK {
			t.Fatalf("login %d of bob: status %d", i, code)
		}
	}
	cancel()
	if code := try(t.Context(), "ann", "right"); code != http.StatusTooManyRequests {
		t.Errorf("ann has used up her attempts: status %d", code)
	}
}
