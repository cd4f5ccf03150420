package groups_test

import (
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/groups"
)

// Limits and tags are in the names of a group, whatever the algorithm, and count as no limiter.
func TestLimitsOfAGroup(t *testing.T) {
	limits := map[string]string{}
	terms := []string{groups.TagsTerm(4), groups.Term("classed", 3)}
	for name, limit := range map[string]hybridlimit.Limit{
		"bucket": hybridlimit.TokenBucket(100, 1e9, 200), "leaky": hybridlimit.LeakyBucket(5, 1e9, 3), "queue": hybridlimit.LeakyQueue(5, 1e9, 3),
		"fixed": hybridlimit.FixedWindow(9, 15e9), "sliding": hybridlimit.SlidingWindow(9, 15e9), "log": hybridlimit.SlidingLog(9, 15e9),
		"flight": hybridlimit.Concurrent(7), "all": hybridlimit.Unlimited(), "none": hybridlimit.Blocked(),
	} {
		text, err := limit.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		limits[name] = string(text)
		terms = append(terms, groups.Term(name, 1), groups.LimitTerm(name, string(text)))
	}
	id := groups.ID(terms)
	names := groups.Parse(id, groups.Text(terms))
	if names == nil || names.Tags != 4 || len(names.Classes) != len(limits)+1 || names.Classes["classed"] != 3 || id[22:] != "3" {
		t.Fatalf("%s: %+v", id, names)
	}
	for name, want := range limits {
		if got := names.Limits[name]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Of several other limits, the one of most live processes is told. Groups that are gone, do not have the limiter or say no limit
// do not count.
func TestOtherLimits(t *testing.T) {
	same := []string{"api", groups.LimitTerm("api", "5/s"), groups.LimitTerm("web", "9/s"), "web"}
	ten := []string{"api", groups.LimitTerm("api", "10/s burst 20")}
	tenToo := []string{"api", "mail", groups.LimitTerm("api", "10/s burst 20")}
	gone := []string{"api", groups.LimitTerm("api", "99/s")}
	old := []string{"api", "old"}
	b := &groups.Book{}
	for _, terms := range [][]string{same, ten, tenToo, gone, old} {
		b.Named(groups.ID(terms), groups.Text(terms))
	}
	c := count(2, same, 9, ten, 2, tenToo, 1, gone, 0, old, 4)
	if other, n := b.OtherLimit(c, "api", "5/s"); other != "10/s burst 20" || n != 3 {
		t.Errorf("%q of %d processes, want that of three", other, n)
	}
	if other, n := b.OtherLimit(c, "web", "9/s"); other != "" || n != 0 {
		t.Errorf("%q of %d processes have another limit for web", other, n)
	}
}
