// Package region shares one bucket limit among regions with a Redis each.
package region
