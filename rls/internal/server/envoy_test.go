package server

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestRealEnvoy runs an Envoy with the configuration of deploy/compose in front of this server: a sixth request in a
// second is denied. There is no Envoy in Debian, in the module proxy or in npm, so it needs ENVOY, the path of one.
func TestRealEnvoy(t *testing.T) {
	program := os.Getenv("ENVOY")
	if program == "" {
		t.Skip("SKIPPED: ENVOY IS NOT SET TO THE PATH OF AN ENVOY, SO NO REAL ENVOY HAS ASKED THE SERVICE")
	}
	folder := filepath.Join("..", "..", "..", "deploy", "compose")
	rules, err := os.ReadFile(filepath.Join(folder, "rules", "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// A day, so that no border of a second is in between.
	r := start(t, "-config", write(t, t.TempDir(), "shop.yaml", strings.Replace(string(rules), "unit: second", "unit: day", 1)))
	config, err := os.ReadFile(filepath.Join(folder, "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(front)
	_, asked, _ := net.SplitHostPort(r.on.GRPC)
	text := strings.NewReplacer(
		"address: 0.0.0.0, port_value: 10000", "address: 127.0.0.1, port_value: "+port,
		"address: hybridlimit, port_value: 8081", "address: 127.0.0.1, port_value: "+asked,
		"timeout: 0.05s", "timeout: 5s",
	).Replace(string(config))
	file := filepath.Join(write(t, t.TempDir(), "envoy.yaml", text), "envoy.yaml")
	cmd := exec.Command(program, "-c", file, "--use-dynamic-base-id", "--log-level", "warn")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	redistest.Eventually(t, 30*time.Second, "Envoy listens", func() bool {
		conn, err := net.Dial("tcp", front)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	var got []string
	for range 7 {
		res, err := http.Get("http://" + front + "/")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		got = append(got, fmt.Sprint(res.StatusCode))
	}
	if want := "200 200 200 200 200 429 429"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
