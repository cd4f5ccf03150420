package benchkit

import (
	"math"
	"slices"
	"strings"
)

// Figures are those of a subject in one round, by name.
type Figures map[string]float64

// Row has the rounds of a subject under a load.
type Row struct {
	Table, Load, Name string
	Rounds            []Figures
}

// Median returns the median of a figure over the rounds. A single round that other programs have slowed down does not
// change it much. It is NaN without such a figure. A name "a / b" stands for the ratio of two medians.
func (r *Row) Median(figure string) float64 {
	if over, under, ok := strings.Cut(figure, " / "); ok {
		return r.Median(over) / r.Median(under)
	}
	all := r.All(figure)
	n := len(all)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// All returns a figure of all rounds that have it.
func (r *Row) All(figure string) (all []float64) {
	if r == nil {
		return nil
	}
	for _, f := range r.Rounds {
		if v, ok := f[figure]; ok {
			all = append(all, v)
		}
	}
	return all
}

// Results has the rows of a measurement, in the order in which they were added.
type Results struct{ Rows []*Row }

// Add adds a round to a row.
func (r *Results) Add(table, load, name string, f Figures) {
	row := r.Row(table, load, name)
	if row == nil {
		row = &Row{Table: table, Load: load, Name: name}
		r.Rows = append(r.Rows, row)
	}
	row.Rounds = append(row.Rounds, f)
}

// Row returns a row, or nil.
func (r *Results) Row(table, load, name string) *Row {
	for _, row := range r.Rows {
		if row.Table == table && row.Load == load && row.Name == name {
			return row
		}
	}
	return nil
}

// Of returns the rows of a table.
func (r *Results) Of(table string) (rows []*Row) {
	for _, row := range r.Rows {
		if row.Table == table {
			rows = append(rows, row)
		}
	}
	return rows
}

// Turns lets each of n subjects take a turn in each round. Another one begins in each round, so that none is always the
// first. Rounds before 0 warm up.
func Turns(first, rounds, n int, turn func(round, i int) error) error {
	for round := first; round < rounds; round++ {
		for i := range n {
			if err := turn(round, (i+max(round, 0))%n); err != nil {
				return err
			}
		}
	}
	return nil
}
