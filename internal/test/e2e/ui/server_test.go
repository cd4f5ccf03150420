package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"
)

// build builds the playground once for all tests.
var build = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "playground-test-"); err != nil {
		return "", err
	}
	program := filepath.Join(buildDir, "playground.exe") // Windows needs the extension, and others ignore it
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join("..", "..", "..", "..", "examples", "playground")
	out, err := cmd.CombinedOutput()
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

// playground is a running playground.
type playground struct {
	url   string
	cmd   *exec.Cmd
	ended bool
}

var atURL = regexp.MustCompile(`http://[0-9.:]+`)

// start runs a playground without a history on a free port until the test ends. Ctrl-C
// must end it without an error.
func start(t *testing.T, args ...string) *playground {
	t.Helper()
	return startAt(t, "127.0.0.1:0", append([]string{"-history", "0s"}, args...)...)
}

func startAt(t *testing.T, addr string, args ...string) *playground {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := &playground{cmd: exec.Command(program, append([]string{"-addr", addr}, args...)...)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(t) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if p.url = atURL.FindString(line); p.url == "" {
		t.Fatalf("no URL in its output: %q, %v", line, err)
	}
	return p
}

func (p *playground) end(t *testing.T) {
	t.Helper()
	if p.ended {
		return
	}
	p.ended = true
	if runtime.GOOS == "windows" { // there is no way to send an interrupt
		p.cmd.Process.Kill()
		p.cmd.Wait()
		return
	}
	p.cmd.Process.Signal(os.Interrupt)
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after Ctrl-C: %v", err)
		}
	case <-time.After(20 * time.Second):
		p.cmd.Process.Kill()
		<-ended
		t.Error("it still runs 20 s after Ctrl-C")
	}
}

// libraryStats has the counts of the fleet's limiters.
type libraryStats struct {
	Sources   map[string][2]int64 `json:"sources"` // allowed, denied
	Messages  int64               `json:"messages"`
	Processes []struct {
		Number  int    `json:"number"`
		N       int64  `json:"n"`
		Credit  int64  `json:"credit"`
		Breaker string `json:"breaker"`
	} `json:"processes"`
}

func (p *playground) stats(t *testing.T) (s libraryStats) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/fleet/stats", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// cpu returns the processor time of the playground. ok is false without /proc.
func (p *playground) cpu() (d time.Duration, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, false
	}
	var ticks [2]int64 // of 10 ms: fields 14 and 15, after the name in brackets
	fields := regexp.MustCompile(`\) (.*)`).FindStringSubmatch(string(text))
	if fields == nil {
		return 0, false
	}
	var skip string
	n, _ := fmt.Sscan(fields[1], &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &ticks[0], &ticks[1])
	return time.Duration(ticks[0]+ticks[1]) * 10 * time.Millisecond, n == 13
}
