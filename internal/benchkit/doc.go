// Package benchkit has the code that the measuring commands share: pictures, tables
// between the markers of a page, bounds for figures, and a description of the
// machine.
//
// Pictures are written by hand. A plotting library would be the largest
// dependency of bench, and the bytes would change with its versions.
package benchkit
