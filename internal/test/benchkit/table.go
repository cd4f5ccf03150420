package benchkit

import (
	"fmt"
	"strings"
)

// Head begins a table in Markdown. The first columns have names, and the others have figures.
func Head(b *strings.Builder, names int, heads ...string) {
	fmt.Fprintf(b, "| %s |\n|%s%s\n", strings.Join(heads, " | "),
		strings.Repeat("---|", names), strings.Repeat("--:|", len(heads)-names))
}

// Column has the medians of a figure.
type Column struct {
	Head, Figure string
	Format       func(float64) string
}

// Col returns a column.
func Col(head, figure string, format func(float64) string) Column {
	return Column{head, figure, format}
}

// Table writes a table in Markdown. label returns the cells with the names of a row.
func Table(b *strings.Builder, names []string, columns []Column, rows []*Row, label func(*Row) string) {
	heads := names
	for _, c := range columns {
		heads = append(heads, c.Head)
	}
	Head(b, len(names), heads...)
	for _, row := range rows {
		b.WriteString("| " + label(row) + " |")
		for _, c := range columns {
			b.WriteString(" " + c.Format(row.Median(c.Figure)) + " |")
		}
		b.WriteByte('\n')
	}
}

// Verb returns a format of package fmt as the format of a column.
func Verb(format string) func(float64) string {
	return func(v float64) string { return fmt.Sprintf(format, v) }
}

// Share is like Verb, for shares in per cent.
func Share(format string) func(float64) string {
	return func(v float64) string { return fmt.Sprintf(format, 100*v) }
}

// Whole formats a figure without its decimals, like 1 234 567.
func Whole(v float64) string { return Thousands(int64(v), " ") }
