package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestMain runs the program itself in the processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv("HYBRIDLIMIT_RLS_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns the program with flags.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "HYBRIDLIMIT_RLS_MAIN=1")
	return cmd
}

var serving = regexp.MustCompile(`serving" grpc=\S* http=(\S*)`)

// run runs a program until it ends, and returns its log. Served is called when it serves, with the address of its pages.
func run(t *testing.T, cmd *exec.Cmd, served func(pages string)) (log string, err error) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for in := bufio.NewScanner(stderr); in.Scan(); {
		log += in.Text() + "\n"
		if at := serving.FindStringSubmatch(in.Text()); at != nil {
			served(at[1])
		}
	}
	return log, cmd.Wait()
}

// terminate sends SIGTERM.
func terminate(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// SIGTERM ends the program with status 0, also if it comes twice.
func TestTerminates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("domain: shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "-config", file, "-grpc", "127.0.0.1:0", "-http", "")
	log, err := run(t, cmd, func(string) {
		terminate(t, cmd)
		terminate(t, cmd)
	})
	if err != nil || !strings.Contains(log, "draining") || !strings.Contains(log, "WARNING: there is no -redis") {
		t.Errorf("%v\n%s", err, log)
	}
}

// TestTerminatesWithoutRedis ends the program with status 0 and in time while Redis is gone, or hangs, and while it parses
// a large file that is wrong. The counts that Redis does not hear of are in the log.
//
// Regression: status 1 after five seconds. An orchestrator took it for a crash.
func TestTerminatesWithoutRedis(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	large := "domain: shop\ndescriptors:\n" + strings.Repeat("- {key: k, nonsense: 1, rate_limit: {unit: day, requests_per_unit: 1}}\n", 4<<20/72)
	for name, c := range map[string]struct {
		redis string
		text  string // a new configuration just before the end
		most  time.Duration
	}{
		"gone": {gone.Addr().String(), "", 6 * time.Second}, "hung": {hung.Addr().String(), "", 6 * time.Second},
		"hung, and a large file": {hung.Addr().String(), large, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(file, []byte("domain: shop\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 9}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := command(t, "-config", file, "-grpc", "127.0.0.1:0", "-http", "127.0.0.1:0", "-redis", c.redis, "-poll", "100ms")
			var ended time.Time
			log, err := run(t, cmd, func(pages string) {
				res, err := http.Post("http://"+pages+"/json", "application/json", strings.NewReader(`{"domain":"shop","descriptors":[{"entries":[{"key":"k"}]}]}`))
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if c.text != "" {
					if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
						t.Fatal(err)
					}
					time.Sleep(250 * time.Millisecond) // two looks; nothing tells that a parse has begun
				}
				ended = time.Now()
				terminate(t, cmd)
			})
			if !testenv.Long() {
				c.most = time.Minute // a busy machine
			}
			if took := time.Since(ended); err != nil || took > c.most || !strings.Contains(log, "Redis was not told all counts") {
				t.Errorf("%v after %v, want status 0 within %v\n%s", err, took, c.most, log)
			}
		})
	}
}

// A wrong flag is status 2. A configuration that is missing and an address that is in use
// are status 1. The last line is the reason.
func TestStatus(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("domain: shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, c := range map[string]struct {
		status int
		last   string
	}{
		"-config=":      {2, "hybridlimit-rls: -config"},
		"-config=/none": {1, "hybridlimit-rls: -config /none: "},
		"-help":         {0, ""},
		"-config=" + file + " -http= -grpc=" + l.Addr().String():            {1, "hybridlimit-rls: -grpc: listen tcp " + l.Addr().String()},
		"-config=" + file + " -grpc=127.0.0.1:0 -http=" + l.Addr().String(): {1, "hybridlimit-rls: -http: listen tcp " + l.Addr().String()},
	} {
		cmd := command(t, strings.Fields(args)...)
		out, _ := cmd.CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if got := cmd.ProcessState.ExitCode(); got != c.status || len(out) == 0 || !strings.HasPrefix(lines[len(lines)-1], c.last) {
			t.Errorf("%s: status %d, want %d\n%s", args, got, c.status, out)
		}
	}
}

// The program collects garbage less often than Go does, unless GOGC is set.
func TestGarbageCollection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("domain: shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for gogc, want := range map[string]string{"": "go_gc_gogc_percent 400\n", "150": "go_gc_gogc_percent 150\n"} {
		cmd := command(t, "-config", file, "-grpc", "127.0.0.1:0", "-http", "127.0.0.1:0")
		cmd.Env = append(cmd.Env, "GOGC="+gogc)
		var text string
		_, err := run(t, cmd, func(pages string) {
			res, err := http.Get("http://" + pages + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			text = string(body)
			terminate(t, cmd)
		})
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("GOGC=%s: %v, no %q in the metrics", gogc, err, want)
		}
	}
}
