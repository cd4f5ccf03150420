package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{})
	os.Exit(m.Run())
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-redis", "nonsense://"}, {"-addr"}, {"extra"}, {"-nope"}, {"-history", "-1s"}, {"-history", "61s"}} {
		if err := start(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	err := start(t.Context(), []string{"-addr", "127.0.0.1:0", "-redis", "redis://127.0.0.1:1"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no Redis at 127.0.0.1:1") {
		t.Errorf("without a Redis: %v", err)
	}
	for url, want := range map[string]string{
		"http://localhost":           "http",
		"redis://localhost:port":     "invalid port",
		"redis://localhost/database": "database",
	} {
		if err := start(t.Context(), []string{"-redis", url}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// TestPasswordsAreNotPrinted checks that an error about a URL never contains
// its password.
func TestPasswordsAreNotPrinted(t *testing.T) {
	for _, url := range []string{
		"redis://:hunter2%zz@localhost", "redis://me:hunter2/more@localhost", "redis://:12/hunter2@localhost",
		"http://:hunter2@localhost", "redis://:hunter2@localhost:port", "redis://:hunter2@localhost/database", "redis://:hunter2@localhost?x=1",
	} {
		var out bytes.Buffer
		err := start(t.Context(), []string{"-redis", url}, &out, &out)
		if err == nil || !strings.Contains(err.Error(), "-redis: must be redis://user:password@host:port/db") {
			t.Errorf("%s: %v", url, err)
		}
		if text := fmt.Sprint(err, out.String()); strings.Contains(text, "hunter2") || strings.Contains(text, "more") {
			t.Errorf("%s: it prints %s", url, text)
		}
	}
}
