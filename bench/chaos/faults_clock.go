package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed testdata/clock.c
var clockSource string

// movableClock makes a server read its wall clock through testdata/clock.c. It
// needs Linux and a C compiler, which the race detector needs as well.
func movableClock(dir string) ([]string, error) {
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(clockSource), 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a clock that can be moved: %w\n%s", err, out)
	}
	return []string{"LD_PRELOAD=" + library, "CHAOS_CLOCK=" + filepath.Join(dir, "clock")}, setClock(dir, 0)
}

func setClock(dir string, seconds int64) error {
	f, err := os.OpenFile(filepath.Join(dir, "clock"), os.O_CREATE|os.O_WRONLY, 0o600) // never truncated: it is mapped
	if err != nil {
		return err
	}
	defer f.Close()
	return binary.Write(f, binary.NativeEndian, seconds)
}

// clockMoved moves the server's clock by seconds, and does not move it back.
func clockMoved(seconds int64) func(context.Context, *scene) (func() error, error) {
	return func(ctx context.Context, s *scene) (func() error, error) {
		before, err := s.world.nodes[0].admin.Time(ctx).Result()
		if err != nil {
			return nil, err
		}
		if err := setClock(s.dir, seconds); err != nil {
			return nil, err
		}
		after, err := s.world.nodes[0].admin.Time(ctx).Result()
		if off := after.Sub(before) - time.Duration(seconds)*time.Second; err == nil && off.Abs() > time.Minute {
			err = fmt.Errorf("the server's clock is off by %v", off)
		}
		return nil, err
	}
}
