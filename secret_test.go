package hybridlimit_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// TestSecretIsNotPrinted checks that a Secret is hidden in every format, alone and in a
// configuration.
func TestSecretIsNotPrinted(t *testing.T) {
	const text = "correct horse battery staple, and more"
	s := hybridlimit.Secret(text)
	config := struct {
		Name string
		Key  hybridlimit.Secret
	}{"api", s}
	var out strings.Builder
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		fmt.Fprintf(&out, format+"\n", s)
		fmt.Fprintf(&out, format+"\n", config)
		fmt.Fprintf(&out, format+"\n", &config)
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(raw)
	slog.New(slog.NewTextHandler(&out, nil)).Info("config", "key", s, "all", config)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("config", "key", s, "all", config)
	var bad adapter.Violations
	bad.AddSecret("Config.HashKeys", s[:31])
	fmt.Fprintln(&out, bad.Err("hybrid"))
	if got := out.String(); strings.Contains(got, text[:8]) || strings.Count(got, "[secret]") != 21 {
		t.Errorf("%d times [secret] in\n%s", strings.Count(got, "[secret]"), got)
	}
	if got := hybridlimit.Secret("").String(); got != "" {
		t.Errorf("an empty Secret prints %q, want nothing", got)
	}
}

func TestSecretHasALength(t *testing.T) {
	for n, ok := range map[int]bool{0: true, 1: false, 31: false, 32: true, 1024: true, 1025: false} {
		var bad adapter.Violations
		bad.AddSecret("Config.HashKeys", hybridlimit.Secret(strings.Repeat("x", n)))
		if (len(bad) == 0) != ok {
			t.Errorf("%d bytes: %v", n, bad)
		}
	}
	var bad adapter.Violations
	bad.AddSecret("Config.HashKeys", "short")
	if got := bad.Err("hybrid").Error(); got != "hybrid: Config.HashKeys ([secret]) must be 32 to 1024 bytes, not 5" {
		t.Error(got)
	}
}
