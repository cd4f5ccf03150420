package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestMain runs the service itself in the processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv("SERVICE_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// replica is a process of the service.
type replica struct {
	url string
	cmd *exec.Cmd
	log strings.Builder
}

// start starts a replica on a free port, and waits until it serves.
func start(t *testing.T, redisAddr string) *replica {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	r := &replica{url: "http://" + addr, cmd: exec.Command(os.Args[0])}
	r.cmd.Env = append(os.Environ(), "SERVICE_TEST_MAIN=1", "ADDR="+addr, "REDIS_ADDR="+redisAddr, "LIMITS=limits/limits.json")
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.cmd.Process.Kill() })
	redistest.Eventually(t, 30*time.Second, "the replica serves", func() bool {
		status, _ := r.get("/health", "", "")
		return status == http.StatusOK
	})
	return r
}

func (r *replica) get(path, user, tenant string) (status int, body string) {
	req, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("X-User", user)
	if tenant != "" {
		req.Header.Set("X-Tenant", tenant)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// TestThreeReplicas runs what compose.yaml describes, as processes: Redis, three replicas and a load. The replicas keep one limit,
// their metrics have each name that the dashboard and the alerts use, and SIGTERM ends them with status 0.
func TestThreeReplicas(t *testing.T) {
	srv := redistest.New(t)
	replicas := []*replica{start(t, srv.Addr()), start(t, srv.Addr()), start(t, srv.Addr())}
	admitted := map[string]int{}
	began := time.Now()
	for i := range 240 {
		for _, user := range []string{"ann", "bob", "gina"} {
			switch status, body := replicas[i%3].get("/orders", user, "of "+user); status {
			case http.StatusOK:
				admitted[user]++
			case http.StatusTooManyRequests:
			default:
				t.Fatalf("status %d, %s", status, body)
			}
		}
	}
	most := 63 + int(time.Since(began)/time.Second) // 60 a minute, 5 % of the burst, and what comes back
	if n := admitted["gina"]; n < 90 {
		t.Errorf("%d calls of gina were admitted, who has 600 a minute by the file", n)
	}
	delete(admitted, "gina")
	for user, n := range admitted {
		if n < 55 || n > most {
			t.Errorf("%d calls of %s were admitted, want 60 to %d", n, user, most)
		}
	}
	if status, _ := replicas[0].get("/orders", "ann", ""); status != http.StatusTooManyRequests {
		t.Errorf("a request without a tenant: status %d", status)
	}
	for range 200 {
		if status, _ := replicas[1].get("/health", "", ""); status != http.StatusOK {
			t.Fatalf("the health route is limited: status %d", status)
		}
	}

	var exported strings.Builder
	for _, r := range replicas {
		_, text := r.get("/metrics", "", "")
		exported.WriteString(text)
	}
	names := regexp.MustCompile(`\brate_limiting_[a-z_]+`)
	has := map[string]bool{}
	for _, name := range names.FindAllString(exported.String(), -1) {
		has[name] = true
	}
	for _, file := range []string{"../../docs/grafana/dashboard.json", "../../docs/grafana/alerts.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var missing []string
		for _, name := range names.FindAllString(string(text), -1) {
			if !has[name] && !slices.Contains(missing, name) && !slices.Contains(elsewhere, name) {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			t.Errorf("%s uses names that the replicas do not export: %q", file, missing)
		}
	}

	for _, r := range replicas {
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range replicas {
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("SIGTERM: %v\n%s", err, r.log.String())
		}
	}
}

// elsewhere has names that this service does not export, because it does not use what they are about.
var elsewhere = []string{
	"rate_limiting_errors_total", "rate_limiting_decision_duration_seconds_bucket", // otellimit: limiters of local and global
}

// TestCompose checks what docker compose config cannot check here: that the files of compose.yaml exist, that the variables are those
// that the service reads, and that Prometheus scrapes the replicas and reads the alerts.
func TestCompose(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Image       string
			Build       struct{ Context, Dockerfile string }
			Environment map[string]string
			Volumes     []string
			DependsOn   []string `yaml:"depends_on"`
			Ports       []string
		}
	}
	parse(t, "compose.yaml", &compose)
	service, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	mounted := map[string]string{}
	for name, s := range compose.Services {
		if (s.Image == "") == (s.Build.Dockerfile == "") {
			t.Errorf("%s has no image, or two", name)
		}
		for _, other := range s.DependsOn {
			if _, ok := compose.Services[other]; !ok {
				t.Errorf("%s depends on %s, which does not exist", name, other)
			}
		}
		for _, v := range s.Volumes {
			parts := strings.Split(v, ":")
			if _, err := os.Stat(parts[0]); err != nil || len(parts) != 3 || parts[2] != "ro" {
				t.Errorf("%s mounts %s: %v", name, v, err)
			}
			mounted[parts[1]] = parts[0]
		}
		if s.Build.Dockerfile == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Error(err)
		}
		for key := range s.Environment {
			if !strings.Contains(string(service), fmt.Sprintf("os.Getenv(%q)", key)) {
				t.Errorf("%s sets %s, which the service does not read", name, key)
			}
		}
		if _, ok := compose.Services[strings.Split(s.Environment["REDIS_ADDR"], ":")[0]]; !ok {
			t.Errorf("%s has the Redis %q", name, s.Environment["REDIS_ADDR"])
		}
		targets = append(targets, name+s.Environment["ADDR"])
	}
	slices.Sort(targets)
	var prometheus struct {
		Global struct {
			Labels map[string]string `yaml:"external_labels"`
		}
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	parse(t, "prometheus.yml", &prometheus)
	if len(targets) != 3 || !slices.Equal(prometheus.Scrape[0].Static[0].Targets, targets) {
		t.Errorf("Prometheus scrapes %q, the replicas are %q", prometheus.Scrape[0].Static[0].Targets, targets)
	}
	if len(prometheus.Rules) != 1 || mounted[prometheus.Rules[0]] != "../../docs/grafana/alerts.yaml" {
		t.Errorf("Prometheus reads the rules %q of %q", prometheus.Rules, mounted)
	}
	if base := prometheus.Global.Labels["runbooks"]; !strings.HasPrefix(base, "https://") || !strings.HasSuffix(base, "/docs/") {
		t.Errorf("the links of the alerts begin with %q", base)
	}
}

// The page has the service, whole.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/getting-started.md")
	if err != nil {
		t.Fatal(err)
	}
	service, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(service), "package main\n")
	if !strings.Contains(string(page), "```go\npackage main\n"+text+"```\n") {
		t.Error("docs/getting-started.md differs from main.go")
	}
}

func parse(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}
