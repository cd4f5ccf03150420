package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// fake is a program that was not compiled.
func fake(_ string, p *v1.Platform) ([]byte, error) {
	return []byte("a program for " + p.String()), nil
}

// filesOf returns the files of an image: their modes, and what they are.
func filesOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(len(layers), err)
	}
	in, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	files := map[string]string{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = fmt.Sprintf("%o %s%s", h.Mode, h.Linkname, text)
		if h.ModTime.Unix() != 0 || h.Uid != 0 {
			t.Errorf("%s: time %v, owner %d", h.Name, h.ModTime, h.Uid)
		}
	}
}

// TestFile writes an image that docker load reads. Its digest depends on the program only.
func TestFile(t *testing.T) {
	var digests [2]v1.Hash
	for i := range digests {
		o := options{tar: filepath.Join(t.TempDir(), "image.tar"), tag: "hybridlimit-rls:dev", platforms: "linux/arm64", build: fake}
		if err := o.run(); err != nil {
			t.Fatal(err)
		}
		tag, err := name.NewTag(o.tag)
		if err != nil {
			t.Fatal(err)
		}
		image, err := tarball.ImageFromPath(o.tar, &tag)
		if err != nil {
			t.Fatal(err)
		}
		if digests[i], err = image.ConfigName(); err != nil {
			t.Fatal(err)
		}
		files := filesOf(t, image)
		if len(files) != 3 || files["hybridlimit-rls"] != "755 a program for linux/arm64" || files["bin/ratelimit"] != "777 /hybridlimit-rls" {
			t.Errorf("%q", files)
		}
		c, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.Config.User != "65532:65532" || c.Config.Entrypoint[0] != "/hybridlimit-rls" || c.Architecture != "arm64" || c.OS != "linux" || len(c.RootFS.DiffIDs) != 1 {
			t.Errorf("%+v", c)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two digests: %v", digests)
	}
}

// TestPush pushes an image of two platforms to a registry.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/hybridlimit-rls:v1"
	o := options{push: to, build: fake}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		if files := filesOf(t, image); files["hybridlimit-rls"] != "755 a program for linux/"+arch {
			t.Errorf("%s: %q", arch, files)
		}
	}
}

// TestArguments does nothing without a destination, and says so.
func TestArguments(t *testing.T) {
	for want, o := range map[string]options{
		"one of -tar and -push is required":       {},
		"one of -tar and -push is required ":      {tar: "x", push: "y"},
		`-platforms ("windows/amd64") must be`:    {tar: "x", platforms: "windows/amd64"},
		`-platforms ("linux") must be`:            {tar: "x", platforms: "linux/amd64,linux"},
		"-platforms: -tar has one platform":       {tar: "x", platforms: "linux/amd64,linux/arm64"},
		"-tag: ":                                  {tar: "x", tag: "A:B:C"},
		"-push: ":                                 {push: "A:B:C"},
		"go build in /none for linux/amd64: ":     {tar: "x", rls: "/none", platforms: "linux/amd64", build: build},
		"open /none/x: no such file or directory": {tar: "/none/x", tag: "a:b"},
	} {
		if o.build == nil {
			o.build = fake
		}
		if err := o.run(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
