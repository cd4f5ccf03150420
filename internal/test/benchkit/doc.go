// Package benchkit is the harness of the measuring commands: child processes, a redis-server, the CPU time and the
// traffic of what is measured, rounds in turn and their medians, tables and required figures of pages, pictures, and a
// description of the machine.
//
// Pictures are written without a library. A plotting library would be the largest dependency of bench, and its versions
// would change the bytes.
package benchkit
