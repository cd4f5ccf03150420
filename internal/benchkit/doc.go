// Package benchkit is what the measuring commands share: pictures, tables between
// the markers of a page, bounds that a figure must keep to, and a description of
// the machine.
//
// Pictures are written by hand. A plotting library would be the largest
// dependency of bench, and the bytes would change with its versions.
package benchkit
