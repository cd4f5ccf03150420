// Image makes the container image of hybridlimit-rls, without a Docker engine and without a base image:
//
//	go run ./image -tar hybridlimit-rls.tar                             # for: docker load -i hybridlimit-rls.tar
//	go run ./image -push registry.example.com/hybridlimit-rls:v0.1.0    # for amd64 and arm64
//
// It has the program, which is /bin/ratelimit too, because the manifests of Envoy Gateway and Istio name that. The same
// source and Go version make the same digest, which is the only line on stdout.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	o := options{build: build}
	flag.StringVar(&o.tar, "tar", "", "`file` for an image of one platform, which docker load reads")
	flag.StringVar(&o.tag, "tag", "hybridlimit-rls:dev", "`name` of the image in that file")
	flag.StringVar(&o.push, "push", "", "`name` under which an image of all platforms is pushed; the credentials are those of docker login")
	flag.StringVar(&o.platforms, "platforms", "", "`platforms`, with commas; empty: linux/amd64,linux/arm64 to push, and linux on this processor for a file")
	flag.StringVar(&o.rls, "rls", filepath.Join("..", "rls"), "`directory` of the module rls")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

type options struct {
	tar, tag, push, platforms, rls string
	build                          func(rls string, p *v1.Platform) ([]byte, error)
}

func (o *options) run() error {
	if (o.tar == "") == (o.push == "") {
		return fmt.Errorf("one of -tar and -push is required")
	}
	names := o.platforms
	if names == "" {
		names = "linux/amd64,linux/arm64"
		if o.tar != "" {
			names = "linux/" + runtime.GOARCH
		}
	}
	var images []v1.Image
	var platforms []*v1.Platform
	for text := range strings.SplitSeq(names, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS != "linux" || p.Architecture == "" {
			return fmt.Errorf("-platforms (%q) must be such as linux/amd64, several with commas", text)
		}
		program, err := o.build(o.rls, p)
		if err != nil {
			return err
		}
		image, err := imageOf(program, p)
		if err != nil {
			return err
		}
		images, platforms = append(images, image), append(platforms, p)
	}
	if o.tar != "" {
		return o.write(images)
	}
	return o.publish(images, platforms)
}

// write writes the file.
func (o *options) write(images []v1.Image) error {
	if len(images) > 1 {
		return fmt.Errorf("-platforms: -tar has one platform")
	}
	tag, err := name.NewTag(o.tag)
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}
	if err := tarball.WriteToFile(o.tar, tag, images[0]); err != nil {
		return err
	}
	digest, err := images[0].Digest()
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

// publish pushes an index of the images.
func (o *options) publish(images []v1.Image, platforms []*v1.Platform) error {
	ref, err := name.ParseReference(o.push)
	if err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	index := indexOf(images, platforms)
	if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Println(ref.Context().Digest(digest.String()))
	return nil
}

// build compiles the program of a checkout.
func build(rls string, p *v1.Platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, "hybridlimit-rls")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, "./cmd/hybridlimit-rls")
	cmd.Dir, cmd.Stderr = rls, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture, "GOFLAGS=")
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build in %s for %v: %w", rls, p, err)
	}
	return os.ReadFile(to)
}
