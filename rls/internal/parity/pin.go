package parity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Replayed is the commit whose tests package replay runs: the newest one of which the module proxy has a module.
const Replayed = "3fb702589d36"

// Pin is the version whose answers are recorded.
type Pin struct {
	Commit string
	Date   string
	Hash   string // of all cases: see Hash
}

// ReadPin reads PIN of a directory.
func ReadPin(dir string) (Pin, error) {
	text, err := os.ReadFile(filepath.Join(dir, "PIN"))
	if err != nil {
		return Pin{}, err
	}
	var p Pin
	if _, err := fmt.Sscanf(string(text), "commit %s\ndate %s\nhash %s\n", &p.Commit, &p.Date, &p.Hash); err != nil {
		return Pin{}, fmt.Errorf("%s: %w", filepath.Join(dir, "PIN"), err)
	}
	return p, nil
}

// Write writes PIN.
func (p Pin) Write(dir string) error {
	text := fmt.Sprintf("commit %s\ndate %s\nhash %s\n", p.Commit, p.Date, p.Hash)
	return os.WriteFile(filepath.Join(dir, "PIN"), []byte(text), 0o644)
}

// Hash returns a hash of the cases of a directory, by their names and texts.
func Hash(dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(name), len(text), text)
	}
	return strings.ToLower(hex.EncodeToString(h.Sum(nil)[:16])), nil
}
