package shed

// Stats is the state of a Shedder.
type Stats struct {
	Share    float64      // part of the calls below the first class that is shed at once, 0 to 1
	Limit    int          // calls that may run at once before calls wait
	InFlight int          // calls that run, of all classes
	Waiting  int          // calls that wait for a place
	Classes  []ClassStats // in the order of Config.Classes
}

// ClassStats counts the calls of one class since New.
type ClassStats struct {
	Class   string
	Allowed int64
	Shed    int64 // calls that were shed, for either reason
	NoRoom  int64 // of these: calls that waited MaxWait without a place
}

// Stats returns the state now.
func (s *Shedder) Stats() Stats {
	all := Stats{
		Share:    *s.cut.share.Load(),
		Limit:    s.limiter.Limit(),
		InFlight: int(s.running.Load()),
		Waiting:  s.room.queued(),
	}
	for _, c := range s.classes {
		all.Classes = append(all.Classes, ClassStats{
			Class:   c.name,
			Allowed: c.allowed.Load(),
			NoRoom:  c.noRoom.Load(), // before Shed, which is never below
			Shed:    c.shed.Load(),
		})
	}
	return all
}
