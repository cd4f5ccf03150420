// Package split knows which part of each split key this process uses, and when it should use another one. It asks nobody
// and changes no key: package hybrid does, with its answers.
package split
