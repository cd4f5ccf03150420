package main

import (
	"archive/tar"
	"bytes"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user and the group of the program. It has no rights.
const user = "65532:65532"

// entries are the files of the image, in their order. All have the time 0, so that the digest depends on the program only.
func entries(program []byte) []tar.Header {
	return []tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "bin/ratelimit", Typeflag: tar.TypeSymlink, Linkname: "/hybridlimit-rls", Mode: 0o777},
		{Name: "hybridlimit-rls", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))},
	}
}

// imageOf returns the image of a program.
func imageOf(program []byte, p *v1.Platform) (v1.Image, error) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, h := range entries(program) {
		h.ModTime, h.Format = time.Unix(0, 0), tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(program); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.OS, Architecture: p.Architecture, Variant: p.Variant, RootFS: rootOf(layer),
		Config: v1.Config{
			Entrypoint: []string{"/hybridlimit-rls"}, User: user, WorkingDir: "/",
			Env:          []string{"PATH=/bin:/"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
			Labels:       map[string]string{"org.opencontainers.image.title": "hybridlimit-rls", "org.opencontainers.image.licenses": "Apache-2.0"},
		},
	})
}

func rootOf(layer v1.Layer) v1.RootFS {
	id, err := layer.DiffID()
	if err != nil {
		panic(err) // it was read from memory
	}
	return v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{id}}
}

// indexOf returns an index of images of several platforms.
func indexOf(images []v1.Image, platforms []*v1.Platform) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, image := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platforms[i]}})
	}
	return index
}
