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

var serving = regexp.MustCompile(`serving" grpc=(\S+)`)

// SIGTERM ends the program with status 0, also if it comes twice.
func TestTerminates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("domain: shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "-config", file, "-grpc", "127.0.0.1:0", "-http", "")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	var log strings.Builder
	for in := bufio.NewScanner(stderr); in.Scan(); {
		log.WriteString(in.Text() + "\n")
		if serving.MatchString(in.Text()) {
			for range 2 {
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "draining") || !strings.Contains(log.String(), "WARNING: there is no -redis") {
		t.Errorf("%v\n%s", err, log.String())
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
	address := regexp.MustCompile(`serving" .*http=(\S+)`)
	for gogc, want := range map[string]string{"": "go_gc_gogc_percent 400\n", "150": "go_gc_gogc_percent 150\n"} {
		cmd := command(t, "-config", file, "-grpc", "127.0.0.1:0", "-http", "127.0.0.1:0")
		cmd.Env = append(cmd.Env, "GOGC="+gogc)
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		var text string
		for in := bufio.NewScanner(stderr); in.Scan(); {
			at := address.FindStringSubmatch(in.Text())
			if at == nil {
				continue
			}
			res, err := http.Get("http://" + at[1] + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			text = string(body)
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); err != nil || !strings.Contains(text, want) {
			t.Errorf("GOGC=%s: %v, no %q in the metrics", gogc, err, want)
		}
	}
}
