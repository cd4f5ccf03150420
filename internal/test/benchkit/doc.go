// Package benchkit has the common parts of the measuring commands: pictures, tables between the markers of a page,
// bounds of figures, and a description of the machine.
//
// Pictures are written without a library. A plotting library would be the largest dependency of bench, and its versions
// would change the bytes.
package benchkit
