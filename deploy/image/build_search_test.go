//go:build search

package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestImageRuns compiles the program twice, compares the digests, and runs what is in the image under the name that
// manifests use.
func TestImageRuns(t *testing.T) {
	var digests [2]string
	root := t.TempDir()
	for i := range digests {
		o := options{tar: filepath.Join(t.TempDir(), "image.tar"), tag: "hybridlimit-rls:dev", rls: filepath.Join("..", "..", "rls"), build: build}
		if err := o.run(); err != nil {
			t.Fatal(err)
		}
		image, err := tarball.ImageFromPath(o.tar, nil)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		digests[i] = digest.String()
		if i > 0 {
			continue
		}
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		in, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		unpack(t, in, root)
	}
	if digests[0] != digests[1] {
		t.Errorf("two digests on %s: %v", runtime.Version(), digests)
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: shop\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root, "bin", "ratelimit"), "-config", rules, "-grpc", "127.0.0.1:0", "-http", "")
	cmd.Env = []string{} // as in a container without variables
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	var log strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "serving") {
			cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "draining") {
		t.Errorf("%v\n%s", err, log.String())
	}
}

// unpack writes the files of a layer below a directory.
func unpack(t *testing.T, in io.Reader, root string) {
	t.Helper()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.Mkdir(to, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(filepath.Join(root, h.Linkname), to)
		case tar.TypeReg:
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(to, data, os.FileMode(h.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
