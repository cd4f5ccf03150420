package groups_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/groups"
)

func TestIDNamesASet(t *testing.T) {
	id := groups.ID([]string{"login", "api"})
	if id != groups.ID([]string{"api", "login"}) || len(id) != 22 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		t.Errorf("%q", id)
	}
	seen := map[string]string{}
	for _, names := range [][]string{{"api"}, {"login"}, {"api", "login"}, {"api.login"}, {"apilogin"}, {"a", "pi", "login"}} {
		id := groups.ID(names)
		if was, ok := seen[id]; ok {
			t.Errorf("%q and %q have the id %s", was, names, id)
		}
		seen[id] = fmt.Sprint(names)
		if got := groups.Parse(id, groups.Text(names)); !slices.Equal(slices.Sorted(maps.Keys(got.Classes)), slices.Sorted(slices.Values(names))) {
			t.Errorf("%q: read back as %v", names, got)
		}
	}
	if got := groups.Parse(id, "api signup"); got != nil {
		t.Errorf("names of another group: %v", got)
	}
	if got := groups.Parse(groups.ID(nil), ""); got != nil {
		t.Errorf("no names: %v", got)
	}
}

// web, batch and alone are groups. web and batch share api.
var web, batch, alone = []string{"api", "login"}, []string{"api", "export"}, []string{"mail"}

// book knows the directory of three groups, and the names of some.
func book(named ...[]string) *groups.Book {
	b := &groups.Book{}
	b.Directory(7, []string{groups.ID(web), groups.ID(batch), groups.ID(alone)})
	for _, names := range named {
		b.Named(groups.ID(names), groups.Text(names))
	}
	return b
}

func count(own int64, of ...any) groups.Count {
	c := groups.Count{Own: own}
	for i := 0; i < len(of); i += 2 {
		c.Others, c.Alive = append(c.Others, groups.ID(of[i].([]string))), append(c.Alive, int64(of[i+1].(int)))
	}
	return c
}

func TestNOfALimiter(t *testing.T) {
	for name, tc := range map[string]struct {
		known      [][]string
		count      groups.Count
		api, login int64
	}{
		"groups without the limiter do not count": {[][]string{web, batch, alone}, count(3, batch, 4), 7, 3},
		"even if they were counted":               {[][]string{web, batch, alone}, count(3, batch, 4, alone, 5), 7, 3},
		"groups of unknown names do":              {[][]string{web, batch}, count(3, batch, 4, alone, 5), 12, 8},
		"the own group needs no names":            {nil, count(3, batch, 4, alone, 5), 12, 12},
	} {
		b := book(tc.known...)
		if api, login := b.Processes(tc.count, "api"), b.Processes(tc.count, "login"); api != tc.api || login != tc.login {
			t.Errorf("%s: N is %d and %d, want %d and %d", name, api, login, tc.api, tc.login)
		}
	}
}

// A count that lacks a group which may share a limiter is too low, and so must not be used.
func TestIncompleteCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		known [][]string
		count groups.Count
		want  bool
	}{
		"a group that shares a limiter is missing": {[][]string{batch, alone}, count(1), false},
		"a group of unknown names is missing":      {[][]string{batch}, count(1, batch, 1), false},
		"all that share a limiter are there":       {[][]string{batch, alone}, count(1, batch, 1), true},
		"all are there":                            {nil, count(1, alone, 1, batch, 1), true},
	} {
		b := book(tc.known...)
		if got := b.Complete(tc.count, groups.ID(web), web); got != tc.want {
			t.Errorf("%s: complete %v", name, got)
		}
		asked := groups.Count{Others: b.Others(groups.ID(web), web)}
		if !b.Complete(asked, groups.ID(web), web) || slices.Contains(asked.Others, groups.ID(web)) {
			t.Errorf("%s: to ask for %q is not enough, or asks for the own group", name, asked.Others)
		}
	}
	var none groups.Book
	if !none.Complete(count(1), groups.ID(web), web) || none.Version() != 0 || none.Others("x", web) != nil {
		t.Error("the zero Book knows groups")
	}
}

func TestNamesAreAskedForOnce(t *testing.T) {
	b := book(batch)
	others := b.Others(groups.ID(web), web)
	if got := b.Nameless(others, 4); !slices.Equal(got, []string{groups.ID(alone)}) {
		t.Errorf("asks for %q", got)
	}
	b.Named(groups.ID(alone), "something else") // evicted and overwritten, say
	if got := b.Nameless(others, 4); len(got) != 1 {
		t.Errorf("names that are not those of the group count: %q", got)
	}
	if got := book().Nameless(others, 1); len(got) != 1 {
		t.Errorf("asks for %d, want 1 at most", len(got))
	}
}

// Names outlive a loss of the directory, but a deployment that always has other groups does not fill memory.
func TestNamesAreForgotten(t *testing.T) {
	b := book(web, batch, alone)
	id := groups.ID(batch)
	b.Directory(8, nil)
	b.Directory(9, []string{id})
	if got := b.Nameless([]string{id}, 1); got != nil {
		t.Errorf("after a loss, the names of %q are not known", got)
	}
	for i := range 1100 {
		names := []string{fmt.Sprint("tenant", i)}
		b.Named(groups.ID(names), groups.Text(names))
		b.Directory(int64(10+i), []string{id})
	}
	if got := b.Nameless([]string{groups.ID(web), id}, 9); !slices.Equal(got, []string{groups.ID(web)}) {
		t.Errorf("after 1100 other groups, the names of %q are not known, want those of web only", got)
	}
}

// TestClassesAreCounted checks that each process counts once for each class of a limiter, and that a process that does not know
// the names of a group does not count too few.
func TestClassesAreCounted(t *testing.T) {
	plain, classed := groups.ID([]string{"api", "login"}), groups.ID([]string{groups.Term("api", 3), groups.Term("login", 1), groups.Term("mail", 2)})
	if len(plain) != 22 || len(classed) != 23 || classed[22] != '3' {
		t.Errorf("ids %s and %s, want the largest number of classes at the end of the second", plain, classed)
	}
	terms := []string{"login", "api*3", "mail*2"}
	if got := groups.Parse(classed, groups.Text(terms)); !maps.Equal(got.Classes, map[string]int64{"api": 3, "login": 1, "mail": 2}) {
		t.Errorf("the limiters and their classes are %v", got)
	}
	if got := groups.Parse(classed[:22], groups.Text(terms)); got != nil {
		t.Errorf("an id without the classes stands for %v", got)
	}
	b := &groups.Book{}
	b.Directory(7, []string{classed, plain})
	c := groups.Count{Own: 2, Others: []string{classed, plain}, Alive: []int64{5, 10}}
	if n, m := b.Processes(c, "api"), b.Accounts(c, "api", 4); n != 17 || m != 2*4+5*3+10 {
		t.Errorf("without names: %d processes and %d accounts, want 17 and 33", n, m)
	}
	b.Named(classed, groups.Text(terms))
	b.Named(plain, groups.Text([]string{"api", "login"}))
	for limiter, want := range map[string]int64{"api": 2*1 + 5*3 + 10, "login": 2 + 5 + 10, "mail": 2 + 5*2, "other": 2} {
		if m := b.Accounts(c, limiter, 1); m != want {
			t.Errorf("%s has %d accounts, want %d", limiter, m, want)
		}
	}
}

// TestOtherParts finds processes that split keys into another number of parts, or not at all. A group that has split no
// key yet says nothing, and neither does one that says no limits.
func TestOtherParts(t *testing.T) {
	terms := func(parts int64) []string {
		of := []string{"api", groups.LimitTerm("api", "100/s")}
		if parts != 1 {
			of = append(of, groups.SplitTerm("api", parts))
		}
		return of
	}
	silent, beside := []string{"api"}, func(parts int64) []string { return append(terms(parts), "login") }
	for _, tc := range []struct {
		own              int64
		others           [][]string
		other, processes int64
	}{
		{4, [][]string{terms(4)}, 0, 0},
		{4, [][]string{terms(8)}, 8, 3},
		{4, [][]string{terms(8), beside(8), terms(2), beside(4)}, 8, 6},
		{4, [][]string{terms(1)}, 1, 3},
		{4, [][]string{terms(0), silent}, 0, 0},
		{1, [][]string{terms(4)}, 4, 3},
		{0, [][]string{terms(4), terms(1)}, 0, 0},
	} {
		b := &groups.Book{}
		var count groups.Count
		for _, of := range tc.others {
			b.Named(groups.ID(of), groups.Text(of))
			count.Others, count.Alive = append(count.Others, groups.ID(of)), append(count.Alive, 3)
		}
		if other, n := b.OtherParts(count, "api", tc.own); other != tc.other || n != tc.processes {
			t.Errorf("%d beside %v: %d of %d processes, want %d of %d", tc.own, tc.others, other, n, tc.other, tc.processes)
		}
	}
}
