package limitfile_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limitfile"
)

// All errors of a file are reported together.
func ExampleParse() {
	_, err := limitfile.Parse("limits.json", []byte(`{
  "api": {
    "limit": "100/s burst 200",
    "keys": {"partner-7": "gold"},
    "Shadow": true
  }
}`))
	fmt.Println(err)
	// Output:
	// limitfile: limits.json:4: api.keys.partner-7 ("gold") is neither a plan of the limiter nor a limit; limits.json:5: api.Shadow (true) is not a field; the fields are limit, plans, keys, shadow, mode, fallback
}

// The text of a file is its content in a normal form.
func ExampleFile_String() {
	f, err := limitfile.Parse("limits.json", []byte(`{"login": {"limit": "5 per minute"}, "api": {"limit": "100/1s", "shadow": true}}`))
	fmt.Println(f)
	fmt.Println(err)
	// Output:
	// {
	//   "api": {
	//     "limit": "100/s",
	//     "shadow": true
	//   },
	//   "login": {
	//     "limit": "5/min"
	//   }
	// }
	//
	// <nil>
}

// A plan is a named limit. The program asks for the plan of a customer, and passes
// its limit to AllowLimit.
func ExampleFile_Plan() {
	f, err := limitfile.Parse("limits.json", []byte(`{"api": {"limit": "10/s", "plans": {"gold": "1000/s burst 3000"}}}`))
	if err != nil {
		panic(err)
	}
	limit, ok := f.Plan("api", "gold")
	fmt.Println(limit, ok)
	_, ok = f.Plan("api", "silver")
	fmt.Println(ok)
	// Output:
	// 1000 per 1s, burst 3000 (token bucket) true
	// false
}

// printer is a hub that prints the settings that it gets. A program passes its
// *hybrid.Hub instead.
type printer struct{}

func (printer) SetSettings(all map[string]hybrid.Settings) error {
	fmt.Println("api:", all["api"].Limit)
	return nil
}

// The limits of a hub come from a file. A change of the file applies within two
// seconds and a tenth.
func ExampleWatch() {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.json")
	text := `{"api": {"limit": "100/s burst 200", "plans": {"gold": "1000/s"}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	limits, err := limitfile.Watch(path, printer{}, limitfile.Config{
		Logger: slog.New(slog.DiscardHandler), // the program's own
	})
	if err != nil {
		panic(err) // the file is missing or invalid
	}
	defer limits.Close() // before the hub is closed

	gold, ok := limits.Plan("api", "gold")
	fmt.Println("gold:", gold, ok)
	// Output:
	// api: 100 per 1s, burst 200 (token bucket)
	// gold: 1000 per 1s, burst 1000 (token bucket) true
}
