package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPagesAreBounded checks that there are at most maxPages pages, and that
// the next one gets an error.
func TestPagesAreBounded(t *testing.T) {
	f := newFeed()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.serve(w, r, func() any { return hello{} })
	}))
	defer server.Close()
	defer f.close()
	for range maxPages {
		if _, err := f.open(); err != nil {
			t.Fatal(err)
		}
	}
	status, text := do(t, "GET", server.URL, "")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, `{"error":"playground: 64 pages are open already: close some"}`) {
		t.Errorf("%d %s", status, text)
	}
	for page := range f.pages {
		f.mu.Lock()
		f.drop(page)
		f.mu.Unlock()
		break
	}
	if _, err := f.open(); err != nil {
		t.Errorf("after one page has closed: %v", err)
	}
}

// TestPagesDoNotUndoEachOther checks that two pages can change different
// settings without undoing each other's change.
func TestPagesDoNotUndoEachOther(t *testing.T) {
	server := serve(t)
	for _, part := range []string{`{"load":2}`, `{"t_ms":20}`, `{"naive":false}`} {
		if status, text := do(t, "PATCH", server.URL+"/api/fleet/settings", part); status != 200 {
			t.Fatalf("%s: %d %s", part, status, text)
		}
	}
	want := initial
	want.Load, want.TMs, want.Naive = 2, 20, false
	var h hello
	hear(t, server.URL, "hello", &h)
	if h.Fleet.State.Settings != want {
		t.Errorf("%+v, want %+v", h.Fleet.State.Settings, want)
	}
}
