package limitfile

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkPoll measures a poll of a file that does not change.
func BenchmarkPoll(b *testing.B) {
	for _, size := range []int{200, 4 << 10, MaxSize} {
		b.Run(fmt.Sprint(size, " bytes"), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "limits.json")
			write(b, path, limits("100")+strings.Repeat(" ", size-len(limits("100"))))
			s, err := Watch(path, &fakeHub{}, Config{Every: never, Logger: slog.New(slog.DiscardHandler)})
			must(b, err)
			defer s.Close()
			b.ReportAllocs()
			for b.Loop() {
				s.poll()
			}
			must(b, s.Err())
		})
	}
}
