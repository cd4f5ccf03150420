package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestPagesShareOneState checks that the other pages, and pages that are opened
// later, see what one page does.
func TestPagesShareOneState(t *testing.T) {
	server := serve(t)
	type heard struct{ s cardState }
	ready, got := make(chan struct{}), make(chan heard, 1)
	go func() {
		defer close(got)
		r, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/feed", nil)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			switch lines.Text() {
			case "event: hello":
				close(ready)
			case "event: card":
				lines.Scan()
				var h heard
				if json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &h.s) == nil {
					got <- h
				}
				return
			}
		}
		t.Errorf("the feed ended: %v", lines.Err())
	}()
	<-ready
	if status, text := do(t, "POST", server.URL+"/api/cards/sliding-log/send", `{"n":3}`); status != 200 || strings.Count(text, `"status":200`) != 3 {
		t.Fatalf("%d %s", status, text)
	}
	if h := <-got; h.s.ID != "sliding-log" || h.s.Sent != 3 {
		t.Errorf("the other page heard %+v", h.s)
	}
	var h hello
	hear(t, server.URL, "hello", &h)
	if s := h.Cards[5]; s.Sent != 3 || len(s.Log) != 3 || s.Remaining != 7 {
		t.Errorf("a new page has %+v", s)
	}
}
