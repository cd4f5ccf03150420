package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/limitfile"
)

// checked runs check on a file with a text.
func checked(t *testing.T, text string) (status int, out, errOut string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errOut = cli(t, "redis://127.0.0.1:1", "check", path)
	return status, strings.ReplaceAll(out, path, "limits.json"), strings.ReplaceAll(errOut, path, "limits.json")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const text = `{
  "api": {
    "limit": "100/s burst 200",
    "plans": {"gold": "1000/s burst 3000"},
    "keys": {"partner-7": "500/s", "a b": "gold"},
    "shadow": true, "mode": "strict", "fallback": "full"
  },
  "login": {"shadow": false, "fallback": "share"}
}`
	const want = `api
  limit            100 per 1s, burst 200 (token bucket)
  plan gold        1000 per 1s, burst 3000 (token bucket)
  key "a b"        1000 per 1s, burst 3000 (token bucket)
  key "partner-7"  500 per 1s, burst 500 (token bucket)
  shadow           true: no call is denied
  mode             strict
  fallback         full: without Redis, N processes admit up to N times the limit
login
  limit     as in Config
  shadow    false
  fallback  share: without Redis, all processes together admit about the limit
limits.json is valid; limiters: 2, keys with a limit of their own: 2
`
	if status, out, errOut := checked(t, text); status != 0 || errOut != "" || out != want {
		t.Errorf("status %d, %s\n%s\nwant\n%s", status, errOut, out, want)
	}
}

// Each error is a line that begins with file and line, for editors.
func TestCheckOfAnInvalidFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "limits.json:1 (\"\") is empty; a file without settings is {}\n",
		"{\"api\": {\n\"limit\": \"100/q\",\n\"Mode\": 1}}": `limits.json:2: api.limit ("100/q") cannot be read: expected a unit (s, min, h, d, week, month, year, ms, µs) or a duration such as 1m30s, got "q"` +
			"\nlimits.json:3: api.Mode (1) is not a field; the fields are limit, plans, keys, shadow, mode, fallback\n",
		strings.Repeat(" ", limitfile.MaxSize+9): "limits.json:1 (4194305 bytes) is longer than 4194304 bytes\n",
	} {
		if status, out, errOut := checked(t, text); status != 1 || out != "" || errOut != want {
			t.Errorf("status %d, %s\n%s\nwant\n%s", status, out, errOut, want)
		}
	}
	for path, want := range map[string]string{
		"/no/such/limits.json": "hybridlimit: open /no/such/limits.json: no such file or directory\n",
		t.TempDir():            "is a directory\n",
	} {
		if status, out, errOut := cli(t, "", "check", path); status != 1 || out != "" || !strings.HasSuffix(errOut, want) {
			t.Errorf("status %d, %s, %s", status, out, errOut)
		}
	}
}
