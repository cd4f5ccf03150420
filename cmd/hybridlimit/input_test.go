package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	empty, short := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "short")
	for file, text := range map[string]string{empty: "\n", short: "tooshort\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const url = "redis://127.0.0.1:1"
	for _, c := range []struct {
		args  []string
		wants []string
	}{
		{nil, []string{"usage: hybridlimit COMMAND", "inspect", "top"}},
		{[]string{"flush"}, []string{`unknown command "flush": the commands are list, top, inspect, reset, switch, limit, key, periods, check, version and completion`}},
		{[]string{"inspect"}, []string{`-name ("") is required`, "must be one key"}},
		{[]string{"inspect", "-name", "a:b", "-prefix", "{x}", "-tags", "-1", "-timeout", "-1s", "a", "b"}, []string{`-name ("a:b")`, `-prefix ("{x}")`, "-tags (-1) must be 1 to 16384", "-timeout (-1s) must be positive", "must be one key"}},
		{[]string{"inspect", "-name", "api", "-limit", "fast", "k"}, []string{"fast"}},
		{[]string{"inspect", "-name", "api", "-limit", "5 concurrent", "k"}, []string{"must be the limit of a rate"}},
		{[]string{"reset", "-name", "api", "-limit", "5 concurrent", "k"}, []string{"must be the limit of a rate"}},
		{[]string{"inspect", "-name", "api", "-redis", "http://user:geheim@host", "k"}, []string{"-redis", "must be redis://"}},
		{[]string{"inspect", "-cluster", "-name", "api", "-redis", "tcp://user:geheim@host", "k"}, []string{"-redis", "must be redis://"}},
		{[]string{"inspect", "-name", "api", "-hash-secret-file", "/no/such/file", "k"}, []string{"-hash-secret-file", "cannot be read"}},
		{[]string{"inspect", "-name", "api", "-hash-secret-file", empty, "k"}, []string{"-hash-secret-file", "is empty"}},
		{[]string{"inspect", "-name", "api", "-hash-secret-file", short, "k"}, []string{"-hash-secret-file ([secret]) must be 32 to 1024 bytes, not 8"}},
		{[]string{"inspect", "-name", "api", "-api-key", "geheim"}, []string{`-api-key ("[secret]") must be -, with the API key in standard input`}},
		{[]string{"inspect", "-name", "api", "-api-key", "-"}, []string{`-api-key ("[secret]") must be 1 to 65536 bytes in standard input`}},
		{[]string{"inspect", "-name", "api", "-floor", "0.6", "k"}, []string{"-floor (0.6) must be above 0 and at most 0.5"}},
		{[]string{"inspect", "-name", "api", "-floor", "NaN", "k"}, []string{"-floor (NaN) must be above 0 and at most 0.5"}},
		{[]string{"inspect", "-name", "api", "-floor", "0.2", "k"}, []string{"-floor (0.2) needs -limit"}},
		{[]string{"inspect", "-name", "api", "-floor", "0.2", "-limit", "9/s sliding log", "k"}, []string{"-floor (0.2) must be absent: a log has no floors"}},
		{[]string{"inspect", "-name", "api", "-ip", "203.0.113.7", "k"}, []string{"must be one key, or one of -for-key, -user, -ip, -api-key, -bearer and -digest"}},
		{[]string{"inspect", "-name", "api", "-ip", "203.0.113.7", "-digest", "short"}, []string{"must be one key, or one of", `-digest ("short") must be a key_digest of 22 characters`}},
		{[]string{"inspect", "-name", "api", "-ip", "203.0.113.7:80", "-ipv4-bits", "33"}, []string{`-ip ("203.0.113.7:80") must be an IP address`, "-ipv4-bits, -ipv6-bits"}},
		{[]string{"inspect", "-name", "api", "-api-key", "-", "-header", "", "-secret-file", short}, []string{`-header ("") must not be empty`, "-secret-file ([secret]) must be 32 to 1024 bytes"}},
		{[]string{"inspect", "-name", "api", ""}, []string{"key"}},
		{[]string{"list", "-n", "0", "-for", "0s", "-rate", "0", "-limit", "1/s", "x"}, []string{"must be none", "-n (0)", "-for (0s)", "-rate (0)", "needs -name"}},
		{[]string{"list", "-name", "a:b"}, []string{`-name ("a:b")`}},
		{[]string{"inspect", "-nme", "api"}, []string{"-nme"}},
		{[]string{"inspect", "-name", "api", "redis://:geheim@host", "alice"}, []string{"arguments ([[url] alice]) must be one key"}},
		{[]string{"redis://:geheim@host"}, []string{`unknown command "[url]"`}},
		{[]string{"redis://:geh\"eim@host"}, []string{`unknown command "[url]"`}},
		{[]string{"switch", "-name", "api", "redis://:geheim@host"}, []string{`switch ("[url]") must be "normal"`}},
		{[]string{"top", "-name", "redis://:geheim@host"}, []string{`-name ("[url]") is required`}},
		{[]string{"top", "-n=redis://:geheim@host"}, []string{`invalid value "[url]" for flag -n`}},
		{[]string{"inspect", "-name", "api", "-limit", "redis://:geheim@host", "k"}, []string{"[url]"}},
		{[]string{"inspect", "-name", "api", "-bearer", "geheim"}, []string{`-bearer ("[secret]") must be -, with the token in standard input`}},
		{[]string{"inspect", "-name", "api", "-user", "ann", "-ip", "192.0.2.1"}, []string{"arguments (2) name more than one key"}},
		{[]string{"inspect", "-name", "api", "-secret-file", empty, "k"}, []string{"-secret-file", "is empty"}},
		{[]string{"key"}, []string{"must be one key, or one of -for-key, -user, -ip, -api-key and -bearer"}},
		{[]string{"version", "now"}, []string{"must be none"}},
		{[]string{"periods"}, []string{"must be one limit"}},
		{[]string{"periods", "5/month in Europe/Berln"}, []string{"Limit.Calendar.Zone (\"Europe/Berln\") is no time zone of this machine"}},
		{[]string{"periods", "5/s"}, []string{`LIMIT ("5/s") has no periods: it is a token bucket`}},
		{[]string{"periods", "5/30d from first use"}, []string{"has no periods before it is used"}},
		{[]string{"completion", "fish"}, []string{`SHELL ("fish") must be bash or zsh`}},
		{[]string{"limit", "-name", "api", "-user", "ann", "-part", "0.5", "-clear"}, []string{"-part (0.5) needs a limit", "-part (0.5) cannot be used with a key"}},
		{[]string{"limit", "-name", "api", "-list", "-user", "ann"}, []string{"-list (true) cannot be used with a limit, a key or -clear"}},
		{[]string{"reset", "-name", "api", "-limit", "unlimited", "k"}, []string{`-limit ("unlimited") must be a limit that counts units`}},
		{[]string{"switch", "-name", "api", "off"}, []string{`switch ("off") must be "normal"`}},
		{[]string{"switch", "-name", "api", "shadow", "now"}, []string{"must be one switch"}},
		{[]string{"check"}, []string{"arguments ([]) must be one file"}},
		{[]string{"check", "a.json", "b.json"}, []string{"arguments ([a.json b.json]) must be one file"}},
		{[]string{"check", "limits.YAML"}, []string{`FILE ("limits.YAML") must be JSON; for YAML call yamllimit.Parse`}},
		{[]string{"check", "-name", "api", "limits.json"}, []string{"flag provided but not defined: -name"}},
		{[]string{"top", "-by", "running"}, []string{`-by ("running") needs -name`}},
		{[]string{"limit", "-name", "api", "5 per fortnight"}, []string{`limit ("5 per fortnight") is not a limit`}},
		{[]string{"limit", "-name", "api", "-part", "1.5", "5/s"}, []string{"FleetLimit.Part (1.5) must be 0.0001 to 1"}},
		{[]string{"limit", "-name", "api", "-clear", "5/s"}, []string{"-clear (true) cannot be used with a limit"}},
		{[]string{"limit", "-name", "api", "-part", "0.5"}, []string{"-part (0.5) needs a limit"}},
		{[]string{"top", "-name", "api", "-by", "size", "-n", "0", "-for", "0s", "-rate", "0", "x"}, []string{"must be none", `-by ("size") must be busiest, emptiest or running`, "-n (0)", "-for (0s)", "-rate (0)"}},
	} {
		status, out, errOut := cli(t, url, c.args...)
		if status != 2 || out != "" {
			t.Errorf("%q: status %d, %q", c.args, status, out)
		}
		for _, want := range c.wants {
			if !strings.Contains(errOut, want) {
				t.Errorf("%q: no %q in %s", c.args, want, errOut)
			}
		}
		if strings.Contains(errOut, "geh") || strings.Contains(errOut, "tooshort") {
			t.Errorf("%q: a secret in %s", c.args, errOut)
		}
	}
	for _, args := range [][]string{{"help"}, {"top", "-h"}} {
		status, _, errOut := cli(t, "redis://:geheim@host:1", args...)
		if status != 0 || !strings.Contains(errOut, "usage: hybridlimit") || strings.Contains(errOut, "geheim") {
			t.Errorf("%q: %d, %s", args, status, errOut)
		}
	}
}

// Without Redis every command fails soon, with the reason.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"inspect", "-name", "api", "k"},
		{"inspect", "-name", "api", "-limit", "1/s", "k"},
		{"reset", "-name", "api", "-limit", "1/s", "k"},
		{"switch", "-name", "api"},
		{"switch", "-name", "api", "shadow"},
		{"top", "-name", "api"},
		{"list"},
		{"inspect", "-name", "api", "-ip", "203.0.113.7"},
		{"inspect", "-name", "api", "-digest", "y1eRbAQ7NoCgToOgndaqrA"},
	} {
		args = append([]string{args[0], "-timeout", "200ms"}, args[1:]...)
		status, out, errOut := cli(t, "redis://127.0.0.1:1", args...)
		if status != 1 || out != "" || !strings.Contains(errOut, "connection refused") || strings.Contains(errOut, "cluster") {
			t.Errorf("%q: %d, %s, %s", args, status, out, errOut)
		}
		args = append([]string{args[0], "-cluster"}, args[1:]...)
		if status, out, errOut := cli(t, "redis://127.0.0.1:1", args...); status != 1 || out != "" || !strings.Contains(errOut, "connection refused") {
			t.Errorf("%q: %d, %s, %s", args, status, out, errOut)
		}
	}
}

// Without Redis the program writes one line with the reason, and none of go-redis.
func TestOneLineWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, cluster := range []string{"-cluster=false", "-cluster"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "inspect", cluster, "-redis", "redis://127.0.0.1:1", "-name", "api", "k")
		cmd.Env = append(os.Environ(), "HYBRIDLIMIT_TEST_MAIN=1")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "connection refused") || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: %v, %q", cluster, err, stderr.String())
		}
	}
}
