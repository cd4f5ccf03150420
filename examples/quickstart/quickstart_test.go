package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// build makes the program once for all tests that run it.
var build = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "quickstart-test-"); err != nil {
		return "", err
	}
	program := filepath.Join(buildDir, "quickstart.exe") // Windows wants the ending, others do not mind
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	os.Stderr.Write(out)
	return program, err
})

var buildDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if buildDir != "" {
		os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// The whole of it, in real time and with real processes, as short as it can be.
// The two run at once.
func TestQuickstart(t *testing.T) {
	for _, tc := range []struct{ name, flag string }{
		{"embedded", "-redis-server=false"},
		{"redis-server", "-redis-server"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.name == "redis-server" {
				redistest.Need(t)
			}
			program, err := build()
			if err != nil {
				t.Fatal(err)
			}
			temp := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, tc.flag, "-seconds", "6", "-processes", "3", "-rate", "200", "-load", "5")
			cmd.Env = append(os.Environ(), "TMPDIR="+temp)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "\nPASS\n") {
				t.Fatalf("%v; it printed:\n%s", err, out)
			}
			for _, want := range []string{"Redis is killed", "deciding locally", "Redis is back", "back on the shared limit", "◄ limit"} {
				if !bytes.Contains(out, []byte(want)) {
					t.Errorf("%q is missing in:\n%s", want, out)
				}
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// Ctrl-C, as far as a program can do that to another.
func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no way to send an interrupt")
	}
	t.Parallel()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-rate", "10", "-load", "1")
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 30*time.Second, "it is on its way", func() bool { return strings.Contains(out.String(), "Starting;") })
	cmd.Process.Signal(os.Interrupt)
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }() // returns when no child holds the output any more
	select {
	case err := <-exited:
		if err == nil || !strings.Contains(out.String(), "interrupted") {
			t.Errorf("%v; it printed:\n%s", err, out.String())
		}
	case <-time.After(10 * time.Second):
		cmd.Process.Kill()
		t.Fatal("it, or a child of it, is still there after 10s")
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
