package main

var fleetFaults = []*fault{}
