package accuracy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// vocabulary has the words of the musts of one kind of file.
type vocabulary struct{ kinds, figures, scales map[string]bool }

// must reads "strict auto exceedance <= 5% of burst" or "* waits <= 1% at 3". "*" stands for all kinds, and "at" gives the load factor.
func (a *args) must(known vocabulary) (Must, error) {
	var m Must
	all := false
	for m.Metric == "" {
		word, err := a.next()
		if err != nil {
			return m, err
		}
		switch {
		case known.figures[word] && (all || len(m.Kinds) > 0):
			m.Metric = word
		case word == "*" && len(m.Kinds) == 0:
			all = true
		case known.kinds[word] && !all:
			m.Kinds = append(m.Kinds, word)
		default:
			return m, fmt.Errorf("%q is out of place: first kinds (*, or some of %s), then a figure (%s)", word, oneOf(known.kinds), oneOf(known.figures))
		}
	}
	sign, err := a.next()
	if err != nil {
		return m, err
	}
	if sign != "<=" && sign != ">=" {
		return m, fmt.Errorf("%q is neither <= nor >=", sign)
	}
	m.AtMost = sign == "<="
	if m.Factor, err = a.number(); err != nil {
		return m, err
	}
	of := false
	err = a.pairs(map[string]func() error{
		"of": func() (err error) { of = true; m.Of, err = a.next(); return },
		"at": func() (err error) { m.At, err = a.number(); return },
	})
	if err == nil && of && !known.scales[m.Of] && !known.kinds[m.Of] {
		err = fmt.Errorf("of %q is of nothing known (%s)", m.Of, strings.Join(append(slices.Sorted(maps.Keys(known.scales)), "or a kind"), ", "))
	}
	return m, err
}

// wordsOf returns the keys of a map.
func wordsOf[V any](m map[string]V) map[string]bool {
	words := map[string]bool{}
	for word := range m {
		words[word] = true
	}
	return words
}
