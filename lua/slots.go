package lua

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
)

// This file has the places of the parts of a split key. Redis Cluster gives each master ranges of slots, in general
// one. So the tags of the parts lie apart in the order of their slots, and not in that of their numbers.

// slotOrder is the tags of a deployment in the order of their cluster slots.
type slotOrder struct {
	tags  []int // by place
	place []int // by tag
}

// slotOrders has a *slotOrder for each number of tags that this program has used for a split key: one or two.
var slotOrders sync.Map

func (n Names) slotOrder() *slotOrder {
	if have, ok := slotOrders.Load(n.Tags); ok {
		return have.(*slotOrder)
	}
	slots, o := make([]uint16, n.Tags), &slotOrder{make([]int, n.Tags), make([]int, n.Tags)}
	for tag := range n.Tags {
		slots[tag], o.tags[tag] = slotOf(tag), tag
	}
	slices.SortStableFunc(o.tags, func(a, b int) int { return cmp.Compare(slots[a], slots[b]) })
	for place, tag := range o.tags {
		o.place[tag] = place
	}
	slotOrders.Store(n.Tags, o)
	return o
}

// slotOf returns the cluster slot of the keys of a tag: CRC-16/XMODEM of its digits, modulo 16384 (the Redis Cluster
// specification, "Key distribution model").
func slotOf(tag int) uint16 {
	crc := uint16(0)
	for _, c := range []byte(strconv.Itoa(tag)) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % MaxTags
}

// PartTag returns the tag of a part of a split key, from the tag of the key. The parts have different tags, if there
// are as many. On a cluster of masters with equal ranges of slots, the parts are spread over the masters as evenly as
// they can.
func (n Names) PartTag(tag, nth, of int) int {
	o := n.slotOrder()
	return o.tags[(o.place[tag]+(nth-1)*n.Tags/of)%n.Tags]
}

// KeyTag is the inverse of PartTag: the tag of a key, from that of a part.
func (n Names) KeyTag(tag, nth, of int) int {
	o := n.slotOrder()
	return o.tags[(o.place[tag]-(nth-1)*n.Tags/of+n.Tags)%n.Tags]
}
