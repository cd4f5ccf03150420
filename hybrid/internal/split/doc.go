// Package split knows which part of each split key this process uses, and when it should use another one. It sends no
// message and changes no key: the packages above do, with its answers.
package split
