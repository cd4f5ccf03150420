//go:build search

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestPrometheus runs a real Prometheus with the files of compose.yaml on three replicas: it scrapes them, it evaluates each alert and
// each query of the dashboard without an error, and a dead Redis raises the alert, with a link to the page.
func TestPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no prometheus: scripts/install-prometheus.sh installs it")
		}
		t.Skip("NOT RUN: there is no prometheus: scripts/install-prometheus.sh installs it")
	}
	srv := redistest.New(t)
	replicas := []*replica{start(t, srv.Addr()), start(t, srv.Addr()), start(t, srv.Addr())}
	dir := t.TempDir()
	config, err := os.ReadFile("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := filepath.Abs("../../docs/grafana/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	swaps := []string{"/etc/prometheus/alerts.yaml", alerts, "_interval: 5s", "_interval: 1s"}
	for i, r := range replicas {
		swaps = append(swaps, fmt.Sprintf("replica-%d:8080", i+1), strings.TrimPrefix(r.url, "http://"))
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(swaps...).Replace(string(config))), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	var log strings.Builder
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	ask := func(path string, into any) error {
		res, err := http.Get("http://" + addr + path)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", res.Status, text)
		}
		return json.Unmarshal(text, into)
	}
	load := func() {
		for i := range 30 {
			replicas[i%3].get("/orders", fmt.Sprint("user", i%7), "acme")
		}
	}
	type answer struct {
		Data struct {
			Result []struct{ Value []any }
			Groups []struct {
				Rules []struct {
					Name, State, Health, LastError string
					Alerts                         []struct{ Annotations map[string]string }
				}
			}
		}
	}
	query := func(q string) (a answer, err error) {
		err = ask("/api/v1/query?query="+url.QueryEscape(q), &a)
		return a, err
	}
	redistest.Eventually(t, time.Minute, "Prometheus scrapes three replicas", func() bool {
		load()
		a, err := query(`sum(up{job="service"})`)
		return err == nil && len(a.Data.Result) == 1 && a.Data.Result[0].Value[1] == "3"
	})
	rule := func(name string) (state, link string) {
		var a answer
		if err := ask("/api/v1/rules", &a); err != nil {
			t.Fatal(err)
		}
		for _, g := range a.Data.Groups {
			for _, r := range g.Rules {
				if r.Health != "ok" && r.Health != "unknown" {
					t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
				}
				if r.Name == name {
					state = r.State
					for _, alert := range r.Alerts {
						link = alert.Annotations["runbook_url"]
					}
				}
			}
		}
		return state, link
	}
	if state, _ := rule("RateLimitBreakerOpen"); state != "inactive" {
		t.Errorf("with Redis, RateLimitBreakerOpen is %q", state)
	}
	board, err := os.ReadFile("../../docs/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	queries := regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllSubmatch(board, -1)
	if len(queries) < 20 {
		t.Fatalf("the dashboard has %d queries", len(queries))
	}
	for _, m := range queries {
		var q string
		if err := json.Unmarshal(m[1], &q); err != nil {
			t.Fatal(err)
		}
		q = strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m", "$__range", "5m", "$policy", ".*").Replace(q)
		if _, err := query(q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	srv.Kill()
	redistest.Eventually(t, time.Minute, "a dead Redis raises the alert", func() bool {
		load()
		state, link := rule("RateLimitBreakerOpen")
		return state != "inactive" && link == "https://github.com/hybridlimit/hybridlimit/blob/main/docs/operations.md#redis-does-not-answer"
	})
}
