package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	goversion "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// writeProxy makes a module proxy of released modules of the checkout, in the form that GOPROXY=file:// reads: a folder
// for each module, with .info, .mod and .zip of one version.
func writeProxy(proxy, root, version string, all []module) error {
	for _, m := range all {
		if !m.released() {
			continue
		}
		escaped, err := goversion.EscapePath(m.path)
		if err != nil {
			return err
		}
		dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		info := fmt.Sprintf(`{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, version)
		for name, text := range map[string]string{"list": version + "\n", version + ".info": info, version + ".mod": string(m.text)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		file, err := os.Create(filepath.Join(dir, version+".zip"))
		if err != nil {
			return err
		}
		err = zip.CreateFromDir(file, goversion.Version{Path: m.path, Version: version}, filepath.Join(root, filepath.FromSlash(m.dir)))
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}
