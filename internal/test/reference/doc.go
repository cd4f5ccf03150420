// Package reference implements each algorithm in the simplest form: rational numbers, maps and lists, directly from the
// definition of the algorithm. It is slow. It shares no code with internal/algo, whose decisions are compared with it
// here. The package has tests only.
package reference
