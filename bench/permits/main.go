package main

import (
	"flag"
	"os"
)

func main() {
	search := flag.Bool("search", false, "search random schedules with faults instead")
	only := flag.String("only", "", "part of the name of the rows to print, such as \"40 × 20 5 s\"")
	n := flag.Int("n", 2000, "schedules for each row of the search")
	flag.Parse()
	if *search {
		writeSearch(os.Stdout, *n)
		writeFree(os.Stdout, 100)
		return
	}
	writeTable(os.Stdout, *only)
}
