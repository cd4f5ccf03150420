package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func names(all []failure) (names []string) {
	for _, f := range all {
		names = append(names, f.String())
	}
	return names
}

var unusual = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// write writes a file for each failed test, and one for each package that failed otherwise.
func (r *report) write(dir string) error {
	revision, _ := exec.Command("git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	for _, x := range r.order {
		if !x.bad {
			continue
		}
		failed := x.failed
		if !x.finished || len(failed) == 0 {
			failed = append([]string{""}, failed...)
		}
		for _, test := range failed {
			f := failure{x.pkg.ImportPath, test}
			text := fmt.Sprintf("revision: %stest: %s\nseed: %s\n\n", revision, f, os.Getenv("HYBRIDLIMIT_SEED"))
			if o := x.output[test]; o != nil {
				text += o.String()
			}
			name := unusual.ReplaceAllString(strings.TrimPrefix(f.String(), "github.com/hybridlimit/hybridlimit/"), "_")
			file, err := os.CreateTemp(dir, name+".*.txt")
			if err != nil {
				return err
			}
			if _, err := file.WriteString(text); err != nil {
				return err
			}
			if err := file.Close(); err != nil {
				return err
			}
			fmt.Println("written:", filepath.Base(file.Name()))
		}
	}
	return nil
}
