package benchkit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		rounds []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3}} {
		row := &Row{}
		for _, v := range tc.rounds {
			row.Rounds = append(row.Rounds, Figures{"a": v, "b": 2 * v})
		}
		if a, ratio := row.Median("a"), row.Median("b / a"); a != tc.want || ratio != 2 {
			t.Errorf("%v: median %v, ratio %v", tc.rounds, a, ratio)
		}
		if got := row.Median("c"); !math.IsNaN(got) {
			t.Errorf("a figure that was not measured is %v", got)
		}
	}
	if got := (*Row)(nil).Median("a"); !math.IsNaN(got) {
		t.Errorf("a row that was not measured has the median %v", got)
	}
}

func TestTurns(t *testing.T) {
	var got []string
	turn := func(round, i int) error {
		got = append(got, fmt.Sprint(round, i))
		return nil
	}
	if err := Turns(-1, 2, 2, turn); err != nil {
		t.Error(err)
	}
	if want := []string{"-1 0", "-1 1", "0 0", "0 1", "1 1", "1 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	failed := errors.New("failed")
	if err := Turns(0, 2, 2, func(int, int) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
}

func TestTable(t *testing.T) {
	var r Results
	for _, v := range []float64{1, 2, 3} {
		r.Add("t", "slow", "a", Figures{"x": v, "n": 1234.9})
		r.Add("t", "slow", "b", Figures{"x": v / 2, "n": 0})
	}
	r.Add("other", "slow", "a", Figures{"x": 7})
	var b strings.Builder
	Table(&b, []string{"load", "name"}, []Column{{"x", "x", Share("%.1f %%")}, {"n", "n", Whole}}, r.Of("t"),
		func(row *Row) string { return row.Load + " | " + row.Name })
	const want = "| load | name | x | n |\n|---|---|--:|--:|\n| slow | a | 200.0 % | 1 234 |\n| slow | b | 100.0 % | 0 |\n"
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

func TestMusts(t *testing.T) {
	var r Results
	r.Add("t", "load", "ours", Figures{"x": 3.5})
	r.Add("t", "load", "theirs", Figures{"x": 2})
	must := func(bound Bound, load, to string, floor bool) Must {
		return Must{What: "x", Bound: bound, Table: "t", Load: load, Name: "ours", To: to, Figure: "x", Floor: floor}
	}
	got := r.Got(
		must(AtMost(3.5), "load", "", false), must(AtMost(3), "load", "", true), must(AtLeast(1.75), "load", "theirs", false),
		must(AtMost(0), "not measured", "", false), Must{Bound: AtMost(1), Got: 1},
	)
	if err := Missed(got); len(got) != 4 || err != nil {
		t.Errorf("%+v: %v", got, err)
	}
	err := Missed(r.Got(must(AtLeast(4), "load", "", false), must(AtMost(9), "load", "nobody", false)))
	if err == nil || err.Error() != "missed: x: 3.5, want ≥ 4\nmissed: x: NaN, want ≤ 9" {
		t.Errorf("error %v", err)
	}
}
