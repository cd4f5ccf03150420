package accuracy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// args are the remaining words of a line.
type args []string

var errMissing = errors.New("something is missing at the end")

func (a *args) next() (string, error) {
	if len(*a) == 0 {
		return "", errMissing
	}
	word := (*a)[0]
	*a = (*a)[1:]
	return word, nil
}

// count reads a whole number of at least 1.
func (a *args) count() (int, error) {
	word, err := a.next()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a whole number of at least 1", word)
	}
	return n, nil
}

// fromTo reads the least and the largest of a range of whole numbers.
func (a *args) fromTo() (least, most int, err error) {
	if least, err = a.count(); err != nil {
		return 0, 0, err
	}
	if most, err = a.count(); err != nil {
		return 0, 0, err
	}
	if most < least {
		return 0, 0, fmt.Errorf("%d is below %d", most, least)
	}
	return least, most, nil
}

// number reads a number of at least 0; 5% is 0.05.
func (a *args) number() (float64, error) {
	word, err := a.next()
	if err != nil {
		return 0, err
	}
	x, ok := parseNumber(word)
	if !ok {
		return 0, fmt.Errorf("%q is not a number of at least 0", word)
	}
	return x, nil
}

func parseNumber(word string) (float64, bool) {
	digits, percent := strings.CutSuffix(word, "%")
	x, err := strconv.ParseFloat(digits, 64)
	if percent {
		x /= 100
	}
	return x, err == nil && x >= 0 && !math.IsInf(x, 0)
}

// numbers reads one or more numbers, all different.
func (a *args) numbers() ([]float64, error) {
	var all []float64
	for len(all) == 0 || len(*a) > 0 {
		if _, ok := parseNumber(strings.Join((*a)[:min(1, len(*a))], "")); !ok && len(all) > 0 {
			break
		}
		x, err := a.number()
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, x) {
			return nil, fmt.Errorf("%s is there twice", number(x))
		}
		all = append(all, x)
	}
	return all, nil
}

func (a *args) duration() (time.Duration, error) {
	word, err := a.next()
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration above 0, such as 500us or 20s", word)
	}
	return d, nil
}

// pairs reads names to the end of the line. names has, for each name, the
// function that reads its value.
func (a *args) pairs(names map[string]func() error) error {
	for len(*a) > 0 {
		name, _ := a.next()
		read, ok := names[name]
		if !ok {
			return fmt.Errorf("unknown %q (there are: %s)", name, oneOf(names))
		}
		if err := read(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// kindsOf reads the words of kinds to the end of the line.
func kindsOf[K comparable](a *args, known map[string]K) ([]K, error) {
	var all []K
	for len(*a) > 0 {
		word, _ := a.next()
		kind, ok := known[word]
		if !ok {
			return nil, fmt.Errorf("unknown kind %q (there are: %s)", word, oneOf(known))
		}
		if slices.Contains(all, kind) {
			return nil, fmt.Errorf("%s is there twice", word)
		}
		all = append(all, kind)
	}
	if len(all) == 0 {
		return nil, errMissing
	}
	return all, nil
}
