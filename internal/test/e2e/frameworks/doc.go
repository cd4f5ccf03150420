// Package frameworks tests the adapters for web frameworks that docs/http.md shows. Each adapter is a package below
// this one. A test compares it with the page.
package frameworks
