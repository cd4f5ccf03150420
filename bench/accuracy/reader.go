package accuracy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// reader reads the lines of a scenario file.
type reader struct {
	file  string
	lines int            // read so far
	said  map[string]int // the last line of each word
	bad   []error        // "file:line: message"
}

func (r *reader) complain(line int, err error) {
	if err != nil {
		r.bad = append(r.bad, fmt.Errorf("%s:%d: %w", r.file, line, err))
	}
}

// require complains of words that no line begins with.
func (r *reader) require(words ...string) {
	for _, word := range words {
		if r.said[word] == 0 {
			r.complain(r.lines, fmt.Errorf("%s is missing", word))
		}
	}
}

// repeatable has the words that more than one line may begin with.
var repeatable = []string{"must", "change"}

// read reads a file into f. Every line is a word with its values; words has the function that reads these. "#" starts a comment.
// after is called after each line without a mistake.
func read[F any](r *reader, text string, words map[string]func(F, *args) error, f F, after func(word string)) {
	r.said = map[string]int{}
	for line := range strings.Lines(text) {
		r.lines++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		word, rest := fields[0], args(fields[1:])
		take, ok := words[word]
		if !ok {
			r.complain(r.lines, fmt.Errorf("unknown word %q (there are: %s)", word, oneOf(words)))
			continue
		}
		if first := r.said[word]; first > 0 && !slices.Contains(repeatable, word) {
			r.complain(r.lines, fmt.Errorf("%s: said in line %d", word, first))
			continue
		}
		r.said[word] = r.lines
		err := take(f, &rest)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%q is one too many", rest[0])
		}
		if err != nil {
			r.complain(r.lines, fmt.Errorf("%s: %w", word, err))
			continue
		}
		after(word)
	}
}

// readAll parses every scenario file (*.txt) of a directory, by name.
func readAll[F any](dir fs.FS, parse func(file, text string) (F, error)) ([]F, error) {
	names, err := fs.Glob(dir, "*.txt")
	if err != nil {
		return nil, err
	}
	var all []F
	var bad []error
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		f, err := parse(name, string(text))
		bad = append(bad, err)
		all = append(all, f)
	}
	return all, errors.Join(bad...)
}

// oneOf lists the keys of a map for an error.
func oneOf[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
