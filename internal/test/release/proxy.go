package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

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
		info, err := json.Marshal(struct {
			Version string
			Time    time.Time
		}{version, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
		if err != nil {
			return err
		}
		for name, text := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": m.text} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				return err
			}
		}
		file, err := os.Create(filepath.Join(dir, version+".zip"))
		if err != nil {
			return err
		}
		err = zip.CreateFromDir(file, goversion.Version{Path: m.path, Version: version}, filepath.Join(root, filepath.FromSlash(m.dir)))
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}
