module github.com/hybridlimit/hybridlimit/bench

go 1.26.0

replace github.com/hybridlimit/hybridlimit => ../
